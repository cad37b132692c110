package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A page of commands is a file in testdata/kubectl. In it,
//
//	# NAME          begins a subtest; the ones after a failed one are left out
//	$ ARGS          runs kubectl, which must succeed; 'quotes' keep blanks together;
//	                "< FILE" at the end is its standard input
//	! ARGS          runs kubectl, which must fail
//	? ARGS          runs kubectl again and again until it succeeds and shows what is wanted
//	& ARGS          starts kubectl; it is interrupted when the subtest ends
//	= URL           is fetched on the cluster's machine until it answers what is wanted
//
// The lines below a command must be in its output; those that begin with "- " must not be in it.
// Commands run in testdata/kubectl, which also has a plugin, and in the page's namespace. %D is the
// cluster's data folder. %T is the page's own folder and its home.
type page struct {
	*kubectl
	namespace string
	home      string
}

type command struct {
	line    int
	mark    string
	args    []string
	input   string
	want    []string
	without []string
}

type section struct {
	name     string
	commands []command
}

// readPage parses a page.
func readPage(text string) (sections []section, err error) {
	scanner := bufio.NewScanner(strings.NewReader(text))
	for n := 1; scanner.Scan(); n++ {
		mark, rest, _ := strings.Cut(strings.TrimSpace(scanner.Text()), " ")
		switch {
		case mark == "":
			continue
		case mark == "#":
			sections = append(sections, section{name: rest})
			continue
		case len(sections) == 0:
			return nil, fmt.Errorf("line %d is in no section", n)
		}
		s := &sections[len(sections)-1]
		switch mark {
		case "$", "!", "?", "&", "=":
			c := command{line: n, mark: mark}
			if before, file, ok := strings.Cut(rest, " < "); ok {
				rest, c.input = before, file
			}
			c.args = words(rest)
			s.commands = append(s.commands, c)
			continue
		}
		if len(s.commands) == 0 {
			return nil, fmt.Errorf("line %d belongs to no command", n)
		}
		last := &s.commands[len(s.commands)-1]
		if mark == "-" {
			last.without = append(last.without, rest)
		} else {
			last.want = append(last.want, strings.TrimSpace(scanner.Text()))
		}
	}
	return sections, scanner.Err()
}

// words splits at blanks that are not quoted.
func words(line string) (list []string) {
	var word strings.Builder
	quoted, begun := false, false
	for _, r := range line {
		switch {
		case r == '\'':
			quoted, begun = !quoted, true
		case r == ' ' && !quoted:
			if begun {
				list = append(list, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	if begun {
		list = append(list, word.String())
	}
	return list
}

func (c *command) String() string {
	return fmt.Sprintf("line %d: %s", c.line, strings.Join(c.args, " "))
}

// check compares an output with the wanted lines.
func (c *command) check(out string) error {
	for _, want := range c.want {
		if !strings.Contains(out, want) {
			return fmt.Errorf("%s: wanted %q in\n%s", c, want, tail(out, 40))
		}
	}
	for _, without := range c.without {
		if strings.Contains(out, without) {
			return fmt.Errorf("%s: did not want %q in\n%s", c, without, tail(out, 40))
		}
	}
	return nil
}

// runPage runs the commands of a page in a new namespace.
func (k *kubectl) runPage(t *testing.T, name, namespace string) {
	text, err := os.ReadFile(filepath.Join("testdata", "kubectl", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	sections, err := readPage(string(text))
	if err != nil {
		t.Fatal(err)
	}
	p := &page{k, namespace, t.TempDir()}
	if out, err := k.invoke("create", "namespace", namespace).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() {
		if out, err := k.invoke("delete", "namespace", namespace, "--timeout=60s").CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	for _, s := range sections {
		if !t.Run(s.name, func(t *testing.T) { p.run(t, s) }) {
			break
		}
	}
}

func (p *page) run(t *testing.T, s section) {
	for i := range s.commands {
		c := &s.commands[i]
		var err error
		switch c.mark {
		case "=":
			err = until(func() error {
				out, err := p.get(c.args[0])
				if err != nil {
					return fmt.Errorf("%s: %w", c, err)
				}
				return c.check(out)
			})
		case "?":
			err = until(func() error { return p.once(c) })
		case "&":
			err = p.begin(t, c)
		default:
			err = p.once(c)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// until retries for a minute.
func until(fn func() error) error {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		err := fn()
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

func (p *page) command(c *command) (*exec.Cmd, error) {
	var args []string
	// These need their first word first: a plugin, an alias, shell completion.
	if !slices.Contains([]string{"shout", "charts", "__complete"}, c.args[0]) {
		args = []string{"--namespace", p.namespace}
	}
	for _, arg := range c.args {
		args = append(args, strings.NewReplacer("%D", p.dir, "%T", p.home).Replace(arg))
	}
	cmd := p.invoke(args...)
	cmd.Dir = filepath.Join("testdata", "kubectl")
	// An editor for edit, a program for diff, and the folder of plugins.
	plugins, err := filepath.Abs(cmd.Dir)
	if err != nil {
		return nil, err
	}
	cmd.Env = append(cmd.Env, "HOME="+p.home, "KUBE_EDITOR=sed -i s/shanty/ballad/", "KUBECTL_EXTERNAL_DIFF=diff -u0", "KUBECTL_APPLYSET=true", "PATH="+plugins+":"+os.Getenv("PATH"))
	if c.input != "" {
		data, err := os.ReadFile(filepath.Join(cmd.Dir, c.input))
		if err != nil {
			return nil, err
		}
		cmd.Stdin = bytes.NewReader(data)
	}
	return cmd, nil
}

func (p *page) once(c *command) error {
	cmd, err := p.command(c)
	if err != nil {
		return err
	}
	out, err := cmd.CombinedOutput()
	if (err != nil) != (c.mark == "!") {
		return fmt.Errorf("%s: %v\n%s", c, err, tail(string(out), 40))
	}
	return c.check(string(out))
}

// begin starts a command and waits until its output has the wanted lines.
func (p *page) begin(t *testing.T, c *command) error {
	cmd, err := p.command(c)
	if err != nil {
		return err
	}
	out := &output{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return err
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		hurry := time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		hurry.Stop()
	})
	return until(func() error { return c.check(out.String()) })
}
