package trace

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/insight/because"
	"github.com/knarr-project/knarr/internal/insight/causes"
	"github.com/knarr-project/knarr/internal/insight/spans"
)

var start = time.Date(2030, 1, 1, 12, 0, 0, 500_000_000, time.Local)

func after(d time.Duration) time.Time { return start.Add(d) }

// record is a write: "apps deployments web" as GROUP RESOURCE NAME, with - for no group.
func record(revision int64, ms int, object, subresource string, effect causes.Effect, actor string, because_ ...int64) causes.Record {
	parts := strings.Fields(object)
	group := strings.TrimPrefix(parts[0], "-")
	return causes.Record{
		Revision: revision, Time: after(time.Duration(ms) * time.Millisecond), Subresource: subresource, Effect: effect, Actor: actor, Verb: "update",
		Object: causes.Object{Group: group, Resource: parts[1], Namespace: "shop", Name: parts[2]}, UID: "uid-" + parts[2], Because: because.Of(because_...),
	}
}

func rollout() causes.Answer {
	account := "system:serviceaccount:kube-system:"
	root := record(10, 0, "apps deployments web", "", causes.Changed, "jane")
	root.Verb, root.Manager, root.Request = "apply", "kubectl", "5f0c"
	guessed := record(19, 900, "apps replicasets web-1", "status", causes.Changed, "system:kube-controller-manager", 18)
	guessed.Inferred = true
	return causes.Answer{Hidden: 1, Records: []causes.Record{
		root,
		record(12, 8, "apps replicasets web-1", "", causes.Created, account+"deployment-controller", 10),
		record(13, 10, "- pods web-1-abcde", "", causes.Created, account+"replicaset-controller", 12),
		record(14, 14, "- pods web-1-abcde", "binding", causes.Changed, "system:kube-scheduler", 13),
		record(15, 20, "- pods web-1-abcde", "status", causes.Changed, "system:node:n1", 14),
		record(18, 860, "- pods web-1-abcde", "status", causes.Changed, "system:node:n1", 15),
		guessed,
		record(20, 870, "discovery.k8s.io endpointslices web-xyz", "", causes.Changed, account+"endpointslice-controller", 3, 18),
	}}
}

// podOf is the pod as the API shows it: its times are cut to seconds.
func podOf() *Facts {
	second := func(ms int) metav1.Time {
		return metav1.NewTime(after(time.Duration(ms) * time.Millisecond).Truncate(time.Second))
	}
	event := func(ms int, reason, message string) corev1.Event {
		return corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("web-1-abcde.%x", after(time.Duration(ms)*time.Millisecond).UnixNano())},
			Reason:     reason, Message: message, Type: corev1.EventTypeNormal, FirstTimestamp: second(ms),
			InvolvedObject: corev1.ObjectReference{FieldPath: "spec.containers{web}"},
		}
	}
	warning := event(500, "Unhealthy", "Readiness probe failed: \x1b[31mconnection refused\n")
	warning.Type = corev1.EventTypeWarning
	return &Facts{
		Pods: map[string]*corev1.Pod{"uid-web-1-abcde": {
			ObjectMeta: metav1.ObjectMeta{UID: types.UID("uid-web-1-abcde")}, Spec: corev1.PodSpec{NodeName: "n1"},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
				{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue, LastTransitionTime: second(30)},
				{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: second(860)},
			}},
		}},
		Events: map[string][]corev1.Event{"uid-web-1-abcde": {
			event(320, "Started", "Started container web"), event(14, "Scheduled", "Successfully assigned"), event(40, "Pulling", `Pulling image "registry/web:v2"`),
			event(240, "Pulled", `Successfully pulled image "registry/web:v2" in 200ms`), event(250, "Created", "Created container web"), warning,
		}},
	}
}

func TestATreeShowsEachHopWithMakerAndCause(t *testing.T) {
	tree := Build(rollout(), podOf())
	var out bytes.Buffer
	if err := tree.Print(&out); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/rollout.txt")
	if err != nil || out.String() != string(want) {
		t.Errorf("%v\n%s", err, out.String())
	}
	for line := range strings.Lines(out.String()) {
		if utf8.RuneCountInString(line) > width+1 {
			t.Errorf("%d columns: %s", utf8.RuneCountInString(line), line)
		}
	}
}

func TestAnEmptyAnswerIsSaid(t *testing.T) {
	var out bytes.Buffer
	tree := Build(causes.Answer{}, nil)
	tree.Missing = map[string]string{"https://b": "no answer"}
	if err := tree.Print(&out); err != nil || !strings.Contains(out.String(), "nothing of this change") || !strings.Contains(out.String(), "https://b") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func TestChromeGetsARowPerObjectAndAnArrowPerCause(t *testing.T) {
	var out bytes.Buffer
	if err := Build(rollout(), podOf()).Chrome(&out); err != nil {
		t.Fatal(err)
	}
	var doc struct{ TraceEvents []chromeEvent }
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, e := range doc.TraceEvents {
		count[e.Phase]++
	}
	// Two of the writes are shown as one.
	if count["M"] != 4 || count["X"] != 7+5 || count["s"] != 6 || count["f"] != 6 {
		t.Errorf("%v\n%s", count, out.String())
	}
}

func TestAPictureHasARowPerHopAndEscapesTexts(t *testing.T) {
	answer := rollout()
	answer.Records[0].Name = `<script>"`
	answer.Records[1].Time = answer.Records[0].Time.Add(time.Microsecond) // it took <1ms
	tree := Build(answer, podOf())
	var out bytes.Buffer
	if err := tree.SVG(&out); err != nil {
		t.Fatal(err)
	}
	hops := 0
	tree.walk(func(int, *Hop) { hops++ })
	texts := 0
	for d := xml.NewDecoder(&out); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok {
			if e.Name.Local == "text" {
				texts++
			}
			if e.Name.Local == "script" {
				t.Error("a name became an element")
			}
		}
	}
	if want := 1 + 5 + 2*hops; texts != want {
		t.Errorf("%d texts, want %d", texts, want)
	}
}

// spanned adds what the nodes tell to podOf.
func spanned() *Facts {
	facts := podOf()
	uid := "uid-web-1-abcde"
	facts.Silent, facts.steps = map[string]string{"n2": "no route to host"}, map[string][]nodeSpan{}
	step := func(name, container, detail string, from, to int) {
		facts.keep("n1", spans.Span{Name: name, UID: uid, Container: container, Detail: detail, Begin: after(time.Duration(from) * time.Millisecond), End: after(time.Duration(to) * time.Millisecond)},
			[]string{uid}, nil)
	}
	step(spans.Volumes, "", "", 15, 17)
	step(spans.Network, "", "", 20, 30)
	step(spans.Sandbox, "", "", 17, 40)
	facts.keep("n1", spans.Span{Name: spans.Pull, UID: uid, Container: "web", Detail: "registry/shop/web:v2", Bytes: 12 << 20, Begin: after(17 * time.Millisecond), End: after(240 * time.Millisecond)}, []string{uid}, nil)
	step(spans.Create, "web", "", 240, 250)
	step(spans.Start, "web", "", 250, 320)
	step(spans.Probe, "web", "readiness probe: success", 850, 855)
	step(spans.Ready, "", "", 320, 856)
	facts.keep("n1", spans.Span{Name: spans.Start, UID: "another pod's", End: after(0)}, []string{uid}, nil)
	for node, ms := range map[string]int{"n1": 871, "n3": 875} {
		facts.keep(node, spans.Span{Name: spans.Rules, Namespace: "shop", Object: "web-xyz", Revisions: []int64{20}, Begin: after(time.Duration(ms) * time.Millisecond), End: after(time.Duration(ms) * time.Millisecond)},
			nil, []string{"shop/web-xyz"})
	}
	return facts
}

func TestStepsComeFromTheNodesThatAnswer(t *testing.T) {
	answer := rollout()
	answer.Records[3].Note = "score 87, next n2 80; 2 of 3 nodes fit, 1 refused; took 1.2ms"
	var out bytes.Buffer
	if err := Build(answer, spanned()).Print(&out); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/spans.txt")
	if err != nil || out.String() != string(want) {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func TestRulesOfPoliciesFollowTheirWrites(t *testing.T) {
	lock := causes.Object{Group: "networking.k8s.io", Resource: "networkpolicies", Namespace: "shop", Name: "lock"}
	members := causes.Object{Group: "network.knarr.io", Resource: "policypeers", Name: "lock-0"}
	policy := causes.Record{Revision: 30, Object: lock, Effect: causes.Created, Time: after(0)}
	peers := causes.Record{Revision: 31, Object: members, Effect: causes.Created, Time: after(time.Millisecond), Because: because.Of(30)}
	answer := causes.Answer{Records: []causes.Record{policy, peers}}
	objects := ruledOf(answer)
	facts := &Facts{}
	for _, s := range []spans.Span{
		{Name: spans.Rules, Namespace: "shop", Object: "lock", Revisions: []int64{30}, Begin: after(0), End: after(3 * time.Millisecond)},
		{Name: spans.Rules, Object: "lock-0", Revisions: []int64{31}, Begin: after(0), End: after(4 * time.Millisecond)},
		{Name: spans.Rules, Namespace: "shop", Object: "other", Revisions: []int64{30}, Begin: after(0), End: after(5 * time.Millisecond)},
	} {
		facts.keep("n1", s, nil, objects)
	}
	var follow []int64
	Build(answer, facts).walk(func(_ int, h *Hop) {
		if h.What == "rules on n1" {
			follow = append(follow, h.Because...)
		}
	})
	slices.Sort(follow)
	if !slices.Equal(follow, []int64{30, 31}) {
		t.Errorf("the rules follow %v", follow)
	}
}

func TestAnswersOfDNSStandBesideRules(t *testing.T) {
	service := causes.Object{Resource: "services", Namespace: "shop", Name: "web"}
	answer := causes.Answer{Records: []causes.Record{{Revision: 30, Object: service, Effect: causes.Created, Time: after(0)}}}
	facts := &Facts{}
	for _, node := range []string{"n1", "n2"} {
		for _, name := range []string{spans.Rules, spans.Names} {
			facts.keep(node, spans.Span{Name: name, Namespace: "shop", Object: "web", Revisions: []int64{30}, Begin: after(0), End: after(time.Millisecond)}, nil, ruledOf(answer))
		}
	}
	var found []string
	Build(answer, facts).walk(func(_ int, h *Hop) { found = append(found, h.What) })
	slices.Sort(found)
	if want := []string{"DNS on n1", "DNS on n2", "rules on n1", "rules on n2"}; !slices.Equal(slices.DeleteFunc(found, func(s string) bool { return !strings.Contains(s, " on n") }), want) {
		t.Errorf("%q", found)
	}
}

func TestRulesOnManyNodesAreOneHop(t *testing.T) {
	facts := spanned()
	for i := range 20 {
		facts.keep(fmt.Sprint("m", i), spans.Span{Name: spans.Rules, Namespace: "shop", Object: "web-xyz", Revisions: []int64{20}, Begin: after(0), End: after(time.Second + time.Duration(i))},
			nil, []string{"shop/web-xyz"})
	}
	var found []string
	Build(rollout(), facts).walk(func(_ int, h *Hop) {
		if strings.HasPrefix(h.What, "rules") {
			found = append(found, h.What)
		}
	})
	if len(found) != 1 || found[0] != "rules on 22 nodes, the last on m19" {
		t.Errorf("%q", found)
	}
}
