package credentials

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const head = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\n"

// bench is a node with one plugin, a shell script. It appends a line for each run to the file runs.
type bench struct {
	t      *testing.T
	dir    string
	now    time.Time
	tokens int
	c      Config
	p      *Providers
}

const plain = "- {name: plug, apiVersion: credentialprovider.kubelet.k8s.io/v1, matchImages: [\"*.example.com\"], defaultCacheDuration: 1h"

func newBench(t *testing.T, more, script string) *bench {
	t.Helper()
	b := &bench{t: t, dir: t.TempDir(), now: time.Unix(1_000_000, 0)}
	b.write("config.yaml", head+"providers:\n"+plain+more+"}\n", 0o644)
	b.write("plug", "#!/bin/sh\ncat > "+b.dir+"/request; echo run >> "+b.dir+"/runs\n"+script, 0o755)
	b.c = Config{
		File: filepath.Join(b.dir, "config.yaml"), BinDir: b.dir, Now: func() time.Time { return b.now }, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Account: func(_ context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
			if name == "missing" {
				return nil, errors.New("not found")
			}
			return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "uid", Annotations: map[string]string{"a.io/role": "reader", "other": "x"}}}, nil
		},
		Token: func(_ context.Context, pod *corev1.Pod, _ *corev1.ServiceAccount, audience string) (string, time.Time, error) {
			b.tokens++
			return fmt.Sprintf("token-%d-%s-%s", b.tokens, pod.UID, audience), b.now.Add(time.Hour), nil
		},
	}
	var err error
	if b.p, err = New(b.c); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) write(name, text string, mode os.FileMode) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, name), []byte(text), mode); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) read(name string) string {
	data, _ := os.ReadFile(filepath.Join(b.dir, name))
	return string(data)
}

func (b *bench) runs() int { return strings.Count(b.read("runs"), "run") }

func podOf(account string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod", UID: "1"}, Spec: corev1.PodSpec{ServiceAccountName: account}}
}

// answer is a script that prints credentials.
func answer(cache, auth string) string {
	return `echo '{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse",` + cache + `,"auth":{` + auth + `}}'` + "\n"
}

func (b *bench) get(image string) string {
	b.t.Helper()
	list, err := b.p.Credentials(b.t.Context(), podOf(""), image)
	if err != nil {
		return err.Error()
	}
	var out []string
	for _, c := range list {
		out = append(out, c.Username+":"+c.Password)
	}
	return strings.Join(out, " ")
}

func TestPatternsOfImages(t *testing.T) {
	for _, c := range []struct {
		pattern, image string
		want           bool
	}{
		{"registry.io", "registry.io/app", true},
		{"*.registry.io", "eu.registry.io/app", true},
		{"*.registry.io", "registry.io/app", false},
		{"*.registry.io", "a.b.registry.io/app", false},
		{"app*.registry.io", "app1.registry.io/app", true},
		{"k8s.*", "k8s.io/app", true},
		{"k8s.*", "k8s.io:80/app", false},
		{"registry.io:8080/team", "registry.io:8080/team/app", true},
		{"registry.io:8080", "registry.io/app", false},
		{"registry.io/team", "registry.io/other", false},
		{"docker.io", "docker.io/library/busybox", true},
	} {
		if got := Matches(c.pattern, c.image); got != c.want {
			t.Errorf("%s on %s: %v", c.pattern, c.image, got)
		}
	}
}

func TestAPluginIsAskedOnlyForItsImages(t *testing.T) {
	b := newBench(t, "", answer(`"cacheKeyType":"Image"`, `"*.example.com":{"username":"u","password":"p"},"eu.example.com/team":{"username":"t","password":"q"},"else.io":{"username":"no"}`))
	if got := b.get("other.io/app"); got != "" || b.runs() != 0 {
		t.Errorf("another registry: %q after %d runs", got, b.runs())
	}
	if got := b.get("eu.example.com/team/app"); got != "t:q u:p" {
		t.Errorf("got %q", got)
	}
	if got := b.read("request"); !strings.Contains(got, `"image":"eu.example.com/team/app"`) || !strings.Contains(got, `"apiVersion":"credentialprovider.kubelet.k8s.io/v1"`) || !strings.Contains(got, `"kind":"CredentialProviderRequest"`) {
		t.Errorf("the request is %s", got)
	}
}

func TestAnswersAreKeptAsThePluginSays(t *testing.T) {
	for name, c := range map[string]struct {
		cache string
		// runs after the same image, another image, another registry, and half an hour later
		runs [4]int
	}{
		"by image":              {`"cacheKeyType":"Image"`, [4]int{1, 2, 3, 3}},
		"by registry":           {`"cacheKeyType":"Registry"`, [4]int{1, 1, 2, 2}},
		"for all images":        {`"cacheKeyType":"Global"`, [4]int{1, 1, 1, 1}},
		"not at all":            {`"cacheKeyType":"Global","cacheDuration":"0s"`, [4]int{2, 3, 4, 5}},
		"for a time of its own": {`"cacheKeyType":"Global","cacheDuration":"10m"`, [4]int{1, 1, 1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "", answer(c.cache, `"*.example.com":{"username":"u","password":"p"}`))
			b.get("eu.example.com/app")
			for i, image := range []string{"eu.example.com/app", "eu.example.com/other", "us.example.com/app", "us.example.com/app"} {
				if i == 3 {
					b.now = b.now.Add(30 * time.Minute)
				}
				if got := b.get(image); got != "u:p" || b.runs() != c.runs[i] {
					t.Errorf("step %d: %q after %d runs, want %d", i, got, b.runs(), c.runs[i])
				}
			}
			b.now = b.now.Add(2 * time.Hour)
			before := b.runs()
			if b.get("us.example.com/app"); b.runs() != before+1 {
				t.Error("an answer was used after its time")
			}
		})
	}
}

func TestSeveralCallersShareARun(t *testing.T) {
	b := newBench(t, "", "while ! [ -e $GO ]; do sleep 0.01; done\n"+answer(`"cacheKeyType":"Image"`, `"*.example.com":{"username":"u"}`))
	t.Setenv("GO", filepath.Join(b.dir, "go"))
	var wg sync.WaitGroup
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if got, err := b.p.Credentials(t.Context(), podOf(""), "eu.example.com/app"); err != nil || len(got) != 1 {
				t.Errorf("%v, %v", got, err)
			}
		}()
	}
	b.write("go", "", 0o644)
	wg.Wait()
	if n := b.runs(); n < 1 || n > 8 || b.get("eu.example.com/app") != "u:" || b.runs() != n {
		t.Errorf("%d runs, then %d", n, b.runs())
	}
}

func TestAPluginThatMisbehavesGivesNoCredentials(t *testing.T) {
	for name, c := range map[string]struct{ script, want string }{
		"it fails":                {"echo no such role >&2; exit 3\n", "exit status 3; the node's log has its messages"},
		"it prints no JSON":       {"echo hello\n", "is not JSON"},
		"it answers another kind": {`echo '{"apiVersion":"v1","kind":"Pod"}'` + "\n", `"Pod" of "v1"`},
		"it has no kind of key":   {answer(`"cacheKeyType":"Sometimes"`, ""), `cacheKeyType "Sometimes" is not usable`},
		"it prints too much":      {"head -c 2000000 /dev/zero\n", "more than 1048576 bytes"},
		"it hangs with a child":   {"sleep 600 & echo $! > $CHILD; wait\n", "did not answer within"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "", c.script)
			child := filepath.Join(b.dir, "child")
			t.Setenv("CHILD", child)
			b.p.plugins[0].time = 10 * time.Second
			if strings.Contains(name, "hangs") {
				b.p.plugins[0].time = 500 * time.Millisecond
			}
			if got := b.get("eu.example.com/app"); !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if pid := strings.TrimSpace(b.read("child")); pid != "" {
				for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
					state, err := os.ReadFile("/proc/" + pid + "/stat")
					if err != nil || strings.Contains(string(state), ") Z ") {
						break
					}
					if time.Now().After(deadline) {
						t.Fatal("the plugin's child goes on")
					}
				}
			}
		})
	}
}

func TestAPluginGetsItsArgumentsAndVariables(t *testing.T) {
	b := newBench(t, ", args: [one, \"two words\"], env: [{name: COLOR, value: red}]",
		`echo "{\"apiVersion\":\"credentialprovider.kubelet.k8s.io/v1\",\"kind\":\"CredentialProviderResponse\",\"cacheKeyType\":\"Image\",\"auth\":{\"eu.example.com\":{\"username\":\"$2\",\"password\":\"$COLOR\"}}}"`+"\n")
	if got := b.get("eu.example.com/app"); got != "two words:red" {
		t.Errorf("got %q", got)
	}
}

const withToken = ", tokenAttributes: {serviceAccountTokenAudience: reg, cacheType: %s, requireServiceAccount: %v, requiredServiceAccountAnnotationKeys: [%s], optionalServiceAccountAnnotationKeys: [other, none]}"

func TestTokensOfServiceAccounts(t *testing.T) {
	b := newBench(t, fmt.Sprintf(withToken, "ServiceAccount", true, "a.io/role"), answer(`"cacheKeyType":"Registry"`, `"*.example.com":{"username":"u","password":"p"}`))
	one, two := podOf("builder"), podOf("builder")
	two.UID = "2"
	list, err := b.p.Credentials(t.Context(), one, "eu.example.com/app")
	if err != nil || len(list) != 1 || list[0].Account == nil || list[0].Account.Name != "builder" {
		t.Fatalf("%v, %v", list, err)
	}
	if got := b.read("request"); !strings.Contains(got, `"serviceAccountToken":"token-1-1-reg"`) || !strings.Contains(got, `"serviceAccountAnnotations":{"a.io/role":"reader","other":"x"}`) {
		t.Errorf("the request is %s", got)
	}
	if _, err := b.p.Credentials(t.Context(), two, "eu.example.com/app"); err != nil || b.runs() != 1 {
		t.Errorf("another pod of the account: %v after %d runs", err, b.runs())
	}
	other := podOf("deployer")
	if _, err := b.p.Credentials(t.Context(), other, "eu.example.com/app"); err != nil || b.runs() != 2 {
		t.Errorf("another account: %v after %d runs", err, b.runs())
	}
	if got := b.get("eu.example.com/app"); got != "" || b.runs() != 2 {
		t.Errorf("a pod without an account: %q after %d runs", got, b.runs())
	}
	if _, err := b.p.Credentials(t.Context(), podOf("missing"), "eu.example.com/app"); err == nil {
		t.Error("no error for an account that does not exist")
	}
}

func TestTokensCanBeTheKeyOfAnswers(t *testing.T) {
	b := newBench(t, fmt.Sprintf(withToken, "Token", true, ""), answer(`"cacheKeyType":"Registry"`, `"*.example.com":{"username":"u"}`))
	one, two := podOf("builder"), podOf("builder")
	two.UID = "2"
	for i, pod := range []*corev1.Pod{one, two, one} {
		if _, err := b.p.Credentials(t.Context(), pod, "eu.example.com/app"); err != nil {
			t.Fatal(err)
		}
		if want := min(i+1, 2); b.runs() != want || b.tokens != want {
			t.Errorf("step %d: %d runs and %d tokens, want %d", i, b.runs(), b.tokens, want)
		}
	}
	b.now = b.now.Add(50 * time.Minute) // most of the token's life
	if _, err := b.p.Credentials(t.Context(), one, "eu.example.com/app"); err != nil || b.tokens != 3 || b.runs() != 3 {
		t.Errorf("after most of a token's life: %v, %d runs, %d tokens", err, b.runs(), b.tokens)
	}
}

func TestARequiredAnnotationThatIsMissingIsAnError(t *testing.T) {
	b := newBench(t, fmt.Sprintf(withToken, "Token", true, "b.io/role"), answer(`"cacheKeyType":"Image"`, ""))
	if _, err := b.p.Credentials(t.Context(), podOf("builder"), "eu.example.com/app"); err == nil || !strings.Contains(err.Error(), "b.io/role") || b.runs() != 0 {
		t.Errorf("%v after %d runs", err, b.runs())
	}
}

func TestAPluginThatNeedsNoAccountServesPodsWithout(t *testing.T) {
	b := newBench(t, fmt.Sprintf(withToken, "Token", false, ""), answer(`"cacheKeyType":"Image"`, `"*.example.com":{"username":"u"}`))
	if got := b.get("eu.example.com/app"); got != "u:" || b.tokens != 0 || strings.Contains(b.read("request"), "serviceAccountToken") {
		t.Errorf("%q with %d tokens", got, b.tokens)
	}
}

func TestFaultsOfTheConfiguration(t *testing.T) {
	b := newBench(t, "", "")
	for name, c := range map[string]struct{ text, want string }{
		"another kind":         {"apiVersion: v1\nkind: Pod\n", "are not usable: kubelet.config.k8s.io/v1"},
		"an unknown field":     {head + "provider: []\n", "unknown field"},
		"no provider":          {head, "at least one provider"},
		"a path as a name":     {head + "providers:\n" + strings.Replace(plain, "plug", "../plug", 1) + "}\n", "without a folder"},
		"no program":           {head + "providers:\n" + strings.Replace(plain, "plug", "none", 1) + "}\n", "no such file"},
		"not a program":        {head + "providers:\n" + strings.Replace(plain, "plug", "config.yaml", 1) + "}\n", "is not a program"},
		"a name twice":         {head + "providers:\n" + plain + "}\n" + plain + "}\n", "no other provider has"},
		"no pattern":           {head + "providers:\n" + strings.Replace(plain, `"*.example.com"`, "", 1) + "}\n", "matchImages: an empty list"},
		"an unknown version":   {head + "providers:\n" + strings.Replace(plain, "io/v1", "io/v9", 1) + "}\n", `apiVersion: "credentialprovider.kubelet.k8s.io/v9"`},
		"no duration":          {head + "providers:\n" + strings.Replace(plain, ", defaultCacheDuration: 1h", "", 1) + "}\n", "defaultCacheDuration: no value"},
		"a token in beta":      {head + "providers:\n" + strings.Replace(plain, "io/v1", "io/v1beta1", 1) + fmt.Sprintf(withToken, "Token", true, "") + "}\n", "only with apiVersion"},
		"no account for a key": {head + "providers:\n" + plain + fmt.Sprintf(withToken, "Token", false, "a.io/role") + "}\n", "only with requireServiceAccount: true"},
		"a key in both lists":  {head + "providers:\n" + plain + fmt.Sprintf(withToken, "Token", true, "other") + "}\n", "in the lists once"},
	} {
		t.Run(name, func(t *testing.T) {
			b.write("bad.yaml", c.text, 0o644)
			d := b.c
			d.File = filepath.Join(b.dir, "bad.yaml")
			if _, err := New(d); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestAFolderOfConfigurations(t *testing.T) {
	b := newBench(t, "", "")
	dir := t.TempDir()
	for name, plugin := range map[string]string{"20.yaml": "plug", "10.json": "first", "ignored.txt": "none"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(head+"providers:\n"+strings.Replace(plain, "plug", plugin, 1)+"}\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b.write("first", "#!/bin/sh\n", 0o755)
	d := b.c
	d.File = dir
	p, err := New(d)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.plugins) != 2 || p.plugins[0].Name != "first" || p.plugins[1].Name != "plug" {
		t.Errorf("%d plugins", len(p.plugins))
	}
}
