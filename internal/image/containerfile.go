package image

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// instruction is one line of a Containerfile, including continuation lines.
type instruction struct {
	line     int
	name     string // upper case
	argument string
}

// parseContainerfile splits a Containerfile into instructions.
func parseContainerfile(content string) ([]instruction, error) {
	var instructions []instruction
	var pending strings.Builder
	start, number := 0, 0
	scanner := bufio.NewScanner(strings.NewReader(content))
	for scanner.Scan() {
		number++
		text := strings.TrimSpace(scanner.Text())
		if strings.HasPrefix(text, "#") || text == "" {
			continue
		}
		if pending.Len() == 0 {
			start = number
		}
		if before, continued := strings.CutSuffix(text, `\`); continued {
			pending.WriteString(before + " ")
			continue
		}
		pending.WriteString(text)
		name, argument, _ := strings.Cut(strings.TrimSpace(pending.String()), " ")
		instructions = append(instructions, instruction{line: start, name: strings.ToUpper(name), argument: strings.TrimSpace(argument)})
		pending.Reset()
	}
	if pending.Len() > 0 {
		return nil, fmt.Errorf("line %d: the last line is continued by nothing", start)
	}
	return instructions, scanner.Err()
}

// containerfileBuild is the state during execution of the instructions.
type containerfileBuild struct {
	options   BuildOptions
	image     v1.Image
	config    v1.Config
	args      map[string]string
	shell     []string
	fromCount int
}

func buildContainerfile(ctx context.Context, options BuildOptions, file string) (v1.Image, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	instructions, err := parseContainerfile(string(content))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	b := &containerfileBuild{options: options, args: map[string]string{}, shell: []string{"/bin/sh", "-c"}}
	for _, instruction := range instructions {
		if err := b.follow(ctx, instruction); err != nil {
			return nil, fmt.Errorf("%s: line %d: %s: %w", file, instruction.line, instruction.name, err)
		}
	}
	if b.image == nil {
		return nil, fmt.Errorf("%s: no FROM", file)
	}
	config, err := b.image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Config = b.config
	return mutate.ConfigFile(b.image, config)
}

func (b *containerfileBuild) follow(ctx context.Context, instruction instruction) error {
	argument := instruction.argument
	if instruction.name == "ARG" {
		return b.arg(argument)
	}
	if instruction.name == "FROM" {
		return b.from(ctx, b.expand(argument))
	}
	if b.image == nil {
		return errors.New("comes before FROM")
	}
	switch instruction.name {
	case "COPY", "ADD":
		return b.copy(instruction.name, b.expand(argument))
	case "ENV":
		return pairs(b.expand(argument), func(name, value string) { b.config.Env = setEnv(b.config.Env, name, value) })
	case "LABEL":
		if b.config.Labels == nil {
			b.config.Labels = map[string]string{}
		}
		return pairs(b.expand(argument), func(name, value string) { b.config.Labels[name] = value })
	case "ENTRYPOINT":
		b.config.Entrypoint, b.config.Cmd = b.command(argument), nil
	case "CMD":
		b.config.Cmd = b.command(argument)
	case "SHELL":
		return json.Unmarshal([]byte(argument), &b.shell)
	case "USER":
		b.config.User = b.expand(argument)
	case "WORKDIR":
		b.config.WorkingDir = b.absolute(b.expand(argument))
	case "STOPSIGNAL":
		b.config.StopSignal = b.expand(argument)
	case "EXPOSE":
		b.config.ExposedPorts = addKeys(b.config.ExposedPorts, strings.Fields(b.expand(argument)), func(port string) string {
			if strings.Contains(port, "/") {
				return port
			}
			return port + "/tcp"
		})
	case "VOLUME":
		var volumes []string
		if json.Unmarshal([]byte(argument), &volumes) != nil {
			volumes = strings.Fields(b.expand(argument))
		}
		b.config.Volumes = addKeys(b.config.Volumes, volumes, func(volume string) string { return volume })
	case "HEALTHCHECK", "MAINTAINER": // Kubernetes has probes; MAINTAINER is obsolete
	case "RUN":
		return errors.New("needs a running container, which this build does not have: put the files there with COPY, or build the image elsewhere and `knarr image load` it")
	default:
		return errors.New("unknown instruction")
	}
	return nil
}

func (b *containerfileBuild) from(ctx context.Context, argument string) error {
	if b.fromCount++; b.fromCount > 1 {
		return errors.New("several stages are not supported: without RUN nothing can be made in an earlier one")
	}
	fields := strings.Fields(argument)
	if len(fields) > 0 && strings.HasPrefix(fields[0], "--platform") {
		fields = fields[1:]
	}
	if len(fields) == 0 {
		return errors.New("an image is missing")
	}
	var err error
	switch {
	case fields[0] == "scratch":
		b.image, err = scratch()
	case b.options.Base == nil:
		err = fmt.Errorf("there is no place to take the base image %s from; only scratch works here", fields[0])
	default:
		b.image, err = b.options.Base(ctx, fields[0])
	}
	if err != nil {
		return err
	}
	config, err := b.image.ConfigFile()
	if err != nil {
		return err
	}
	b.config = config.DeepCopy().Config
	return nil
}

// arg declares a build argument. The caller's value replaces the default.
func (b *containerfileBuild) arg(argument string) error {
	return eachWord(argument, func(word string) error {
		name, value, _ := strings.Cut(word, "=")
		if given, found := b.options.Args[name]; found {
			value = given
		}
		b.args[name] = value
		return nil
	})
}

// expand replaces $NAME, ${NAME} and ${NAME:-default} with build arguments and the image's
// environment.
func (b *containerfileBuild) expand(text string) string {
	return os.Expand(text, func(name string) string {
		name, fallback, _ := strings.Cut(name, ":-")
		for _, variable := range b.config.Env {
			if value, found := strings.CutPrefix(variable, name+"="); found {
				return value
			}
		}
		if value := b.args[name]; value != "" {
			return value
		}
		return fallback
	})
}

// command parses the JSON form, or wraps the shell form.
func (b *containerfileBuild) command(argument string) []string {
	var command []string
	if json.Unmarshal([]byte(argument), &command) == nil {
		return command
	}
	return append(append([]string{}, b.shell...), argument)
}

func (b *containerfileBuild) absolute(target string) string {
	if path.IsAbs(target) {
		return path.Clean(target)
	}
	return path.Join("/", b.config.WorkingDir, target)
}

// copy executes COPY [--chown=UID[:GID]] [--chmod=MODE] SOURCE... TARGET, and ADD if it means the
// same.
func (b *containerfileBuild) copy(name, argument string) error {
	var rules entryRules
	var words []string
	if json.Unmarshal([]byte(argument), &words) != nil {
		words = strings.Fields(argument)
	}
	for len(words) > 0 && strings.HasPrefix(words[0], "--") {
		if err := rules.option(words[0]); err != nil {
			return err
		}
		words = words[1:]
	}
	if len(words) < 2 {
		return errors.New("want SOURCE... TARGET")
	}
	target := words[len(words)-1]
	folder := strings.HasSuffix(target, "/") || len(words) > 2 || target == "."
	var sources []source
	for _, pattern := range words[:len(words)-1] {
		if name == "ADD" && (strings.Contains(pattern, "://") || strings.Contains(path.Base(pattern), ".tar")) {
			return fmt.Errorf("%s: ADD of URLs and archives is not supported: fetch or unpack it first and COPY it", pattern)
		}
		found, err := b.sources(pattern, b.absolute(target), folder, rules)
		if err != nil {
			return err
		}
		sources = append(sources, found...)
	}
	added, err := layerOf(b.options.Source, sources)
	if err != nil {
		return err
	}
	b.image, err = appendLayer(b.image, added, name+" "+argument)
	return err
}

func (b *containerfileBuild) sources(pattern, target string, folder bool, rules entryRules) ([]source, error) {
	relative := strings.TrimPrefix(path.Clean("/"+pattern), "/")
	if relative == "" {
		relative = "."
	}
	context := os.DirFS(b.options.Source)
	matches, err := fs.Glob(context, relative)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", pattern, err)
	}
	if len(matches) == 0 {
		return nil, fmt.Errorf("%s: not found in %s", pattern, filepath.Clean(b.options.Source))
	}
	var sources []source
	for _, match := range matches {
		info, err := fs.Stat(context, match)
		if err != nil {
			return nil, err
		}
		to := target
		if !info.IsDir() && (folder || len(matches) > 1) {
			to = path.Join(target, path.Base(match))
		}
		sources = append(sources, source{from: match, to: to, rules: rules})
	}
	return sources, nil
}

// option parses --chown and --chmod. User names are not supported; they would need the image's
// /etc/passwd.
func (r *entryRules) option(word string) error {
	name, value, _ := strings.Cut(word, "=")
	switch name {
	case "--chown":
		user, group, hasGroup := strings.Cut(value, ":")
		uid, err := strconv.Atoi(user)
		if err != nil {
			return fmt.Errorf("--chown=%s: want numbers, UID[:GID]", value)
		}
		r.uid, r.gid = uid, uid
		if hasGroup {
			if r.gid, err = strconv.Atoi(group); err != nil {
				return fmt.Errorf("--chown=%s: want numbers, UID[:GID]", value)
			}
		}
	case "--chmod":
		mode, err := strconv.ParseUint(value, 8, 12)
		if err != nil {
			return fmt.Errorf("--chmod=%s: want an octal number", value)
		}
		r.mode = fs.FileMode(mode)
	default:
		return fmt.Errorf("%s is not supported", word)
	}
	return nil
}

// pairs parses NAME=VALUE words, or the old form NAME VALUE.
func pairs(argument string, set func(name, value string)) error {
	first, rest, _ := strings.Cut(argument, " ")
	if !strings.Contains(first, "=") {
		if rest == "" {
			return errors.New("want NAME=VALUE")
		}
		set(first, strings.TrimSpace(rest))
		return nil
	}
	return eachWord(argument, func(word string) error {
		name, value, found := strings.Cut(word, "=")
		if !found {
			return fmt.Errorf("%q: want NAME=VALUE", word)
		}
		set(name, value)
		return nil
	})
}

// eachWord splits at spaces outside quotes and removes the quotes.
func eachWord(text string, do func(word string) error) error {
	var word strings.Builder
	var quote rune
	inWord, escaped := false, false
	for _, char := range text + " " {
		switch {
		case escaped:
			word.WriteRune(char)
			escaped = false
		case char == '\\' && quote != '\'':
			escaped, inWord = true, true
		case quote != 0 && char == quote:
			quote = 0
		case quote == 0 && (char == '"' || char == '\''):
			quote, inWord = char, true
		case quote == 0 && (char == ' ' || char == '\t'):
			if inWord {
				if err := do(word.String()); err != nil {
					return err
				}
			}
			word.Reset()
			inWord = false
		default:
			word.WriteRune(char)
			inWord = true
		}
	}
	if quote != 0 {
		return errors.New("a quote is not closed")
	}
	return nil
}

// addKeys adds words to a set, each in its full form.
func addKeys(set map[string]struct{}, words []string, full func(string) string) map[string]struct{} {
	if set == nil {
		set = map[string]struct{}{}
	}
	for _, word := range words {
		set[full(word)] = struct{}{}
	}
	return set
}
