package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/knarr-project/knarr/internal/config"
)

const (
	// width is the width of help in columns.
	width = 100
	// mostFlagWidth is the maximum width of a flag with its text on the same line.
	mostFlagWidth = 30
	// leastColumn is the minimum column of texts.
	leastColumn = 24
	// commonKey is the annotation of the settings that --help shows; its value is their order.
	commonKey = "knarr_common"
	// helpAll is the flag that shows all settings, or those of a topic. allTopics is its value
	// without a topic.
	helpAll   = "help-all"
	allTopics = "all"
)

// common selects the settings that --help shows, in this order. A command without a selection shows
// all of its settings.
func common(cmd *cobra.Command, names ...string) {
	for i, name := range names {
		if flag := cmd.Flags().Lookup(name); flag != nil {
			setAnnotation(flag, commonKey, fmt.Sprintf("%03d", i))
		}
	}
	usage := "show all settings by `TOPIC`, or those of one topic with details"
	cmd.Flags().String(helpAll, "", usage)
	cmd.Flags().Lookup(helpAll).NoOptDefVal = allTopics
	config.OnlyOnCommandLine(cmd.Flags().Lookup(helpAll))
}

func setAnnotation(flag *pflag.Flag, key string, values ...string) {
	if flag.Annotations == nil {
		flag.Annotations = map[string][]string{}
	}
	flag.Annotations[key] = values
}

// commonOf returns the settings that --help shows, in order.
func commonOf(cmd *cobra.Command) (flags []*pflag.Flag) {
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if flag.Annotations[commonKey] != nil {
			flags = append(flags, flag)
		}
	})
	slices.SortFunc(flags, func(a, b *pflag.Flag) int {
		return cmp.Compare(a.Annotations[commonKey][0], b.Annotations[commonKey][0])
	})
	return flags
}

// ownOf returns the flags that a command itself declares, without settings.
func ownOf(cmd *cobra.Command) (flags []*pflag.Flag) {
	add := func(flag *pflag.Flag) {
		if config.TopicOf(flag) == "" && !flag.Hidden && flag.Name != "help" && flag.Name != helpAll && !slices.Contains(flags, flag) {
			flags = append(flags, flag)
		}
	}
	cmd.LocalFlags().VisitAll(add)
	cmd.InheritedFlags().VisitAll(add)
	return flags
}

// settingsOf returns the settings of a topic, or of all topics for "".
func settingsOf(cmd *cobra.Command, topic config.Topic) (flags []*pflag.Flag) {
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if at := config.TopicOf(flag); !flag.Hidden && at != "" && (topic == "" || at == topic) {
			flags = append(flags, flag)
		}
	})
	return flags
}

// showHelp shows the help of any command.
func showHelp(cmd *cobra.Command, _ []string) {
	out := cmd.OutOrStdout()
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(out, "%s\n\nUsage: %s\n", about(cmd), usageLine(cmd))
		writeCommands(out, cmd)
	} else {
		fmt.Fprintf(out, "%s\n\nUsage:\n  %s\n", about(cmd), usageLine(cmd))
	}
	if cmd.HasExample() {
		fmt.Fprintf(out, "\nExamples:\n%s\n", indent(cmd.Example))
	}
	writeFlags(out, "Flags", ownOf(cmd), false)
	shown := commonOf(cmd)
	if len(shown) == 0 {
		shown = settingsOf(cmd, "")
	}
	writeFlags(out, "Settings", shown, false)
	if more := len(settingsOf(cmd, "")) - len(shown); more > 0 {
		var topics []string
		for _, topic := range topicsOf(cmd) {
			topics = append(topics, string(topic))
		}
		fmt.Fprintf(out, "\n%d more settings by topic: %s --help-all=TOPIC, or --help-all for all of them.\n%s\n", more, cmd.CommandPath(), wrap(strings.Join(topics, ", "), 2))
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(out, "\n`%s COMMAND --help` says more about a command.\n", cmd.CommandPath())
	}
}

// about returns the description of a command. Empty lines and lines that begin with a blank are
// kept as they are.
func about(cmd *cobra.Command) string {
	text := strings.TrimRight(cmp.Or(cmd.Long, cmd.Short+"."), "\n")
	var lines []string
	flowing := false
	for line := range strings.SplitSeq(text, "\n") {
		flows := line != "" && line[0] != ' '
		if flows && flowing {
			lines[len(lines)-1] += " " + line
		} else {
			lines = append(lines, line)
		}
		flowing = flows
	}
	for i, line := range lines {
		if line != "" && line[0] != ' ' {
			lines[i] = wrap(line, 0)
		}
	}
	return strings.Join(lines, "\n")
}

func usageLine(cmd *cobra.Command) string {
	_, arguments, _ := strings.Cut(cmd.Use, " ")
	words := []string{cmd.CommandPath()}
	switch {
	case cmd.HasAvailableSubCommands():
		words = append(words, "COMMAND")
	case len(ownOf(cmd))+len(settingsOf(cmd, "")) > 0:
		words = append(words, "[flags]")
	}
	return strings.TrimSpace(strings.Join(append(words, arguments), " "))
}

// writeCommands lists subcommands by group; those without a group come last.
func writeCommands(out io.Writer, cmd *cobra.Command) {
	sections := append(slices.Clone(cmd.Groups()), &cobra.Group{Title: "Commands"})
	if len(cmd.Groups()) > 0 {
		sections[len(sections)-1].Title = "More"
	}
	longest := 0
	for _, sub := range cmd.Commands() {
		longest = max(longest, len(sub.Name()))
	}
	for _, section := range sections {
		title := "\n" + section.Title + ":\n"
		var names []string
		for _, sub := range cmd.Commands() {
			switch {
			case sub.GroupID != section.ID || !sub.IsAvailableCommand():
			case section.ID == groupComponent:
				names = append(names, sub.Name())
			default:
				fmt.Fprintf(out, "%s  %-*s  %s\n", title, longest, sub.Name(), sub.Short)
				title = ""
			}
		}
		if len(names) > 0 { // the title says all
			fmt.Fprintf(out, "%s%s\n", title, wrap(strings.Join(names, ", "), 2))
		}
	}
}

// showAll shows the settings by topic if --help-all is given.
func showAll(cmd *cobra.Command, args []string) (shown bool, err error) {
	flag := cmd.Flags().Lookup(helpAll)
	if flag == nil || !flag.Changed {
		return false, nil
	}
	topic := flag.Value.String()
	if topic == allTopics && len(args) == 1 {
		topic = args[0] // --help-all TOPIC, without '='
	}
	out, topics := cmd.OutOrStdout(), topicsOf(cmd)
	if topic == allTopics {
		fmt.Fprintf(out, "All settings of %s. --help-all=TOPIC shows one topic with details.\n", cmd.CommandPath())
		writeFlags(out, "Flags", ownOf(cmd), false)
		for _, one := range config.Topics {
			writeFlags(out, one.Title+" ("+string(one.Name)+")", settingsOf(cmd, one.Name), false)
		}
		return true, errHelped
	}
	names := make([]string, len(topics))
	for i, name := range topics {
		names[i] = string(name)
	}
	if !slices.Contains(names, topic) {
		near := config.Nearest(topic, names)
		return false, usageError(cmd, fmt.Errorf("--help-all: %q is no topic%s\nTopics: %s", topic, didYouMean(near), strings.Join(names, ", ")))
	}
	for _, one := range config.Topics {
		if string(one.Name) == topic {
			writeFlags(out, one.Title, settingsOf(cmd, one.Name), true)
		}
	}
	return true, errHelped
}

// topicsOf returns the topics of a command's settings, in order.
func topicsOf(cmd *cobra.Command) (names []config.Topic) {
	for _, topic := range config.Topics {
		if len(settingsOf(cmd, topic.Name)) > 0 {
			names = append(names, topic.Name)
		}
	}
	return names
}

// writeFlags lists flags below a title. Without flags it writes nothing.
func writeFlags(out io.Writer, title string, flags []*pflag.Flag, details bool) {
	if len(flags) == 0 {
		return
	}
	fmt.Fprintf(out, "\n%s:\n", title)
	column := 0
	for _, flag := range flags {
		if n := len(flagForm(flag)); n <= mostFlagWidth {
			column = max(column, n)
		}
	}
	column = max(column+2, leastColumn)
	for _, flag := range flags {
		form := flagForm(flag)
		text := wrap(flagText(flag, details), column)
		if len(form)+2 > column {
			fmt.Fprintf(out, "%s\n%s\n", form, text)
			continue
		}
		fmt.Fprintf(out, "%-*s%s\n", column, form, text[column:])
	}
}

// flagForm returns the form of a flag: "  -t, --tag NAME".
func flagForm(flag *pflag.Flag) string {
	form := "      --" + flag.Name
	if flag.Shorthand != "" {
		form = "  -" + flag.Shorthand + ", --" + flag.Name
	}
	if value := config.HelpOf(flag).Value; value != "" {
		form += " " + value
	}
	return form
}

// flagText returns a flag's summary with its default. With details it adds values, details and
// other names.
func flagText(flag *pflag.Flag, details bool) string {
	h := config.HelpOf(flag)
	text := h.Summary
	if h.Default != "" && !(flag.Value.Type() == "bool" && h.Default == "false") {
		text += " (default " + h.Default + ")"
	}
	if !details {
		return text
	}
	for _, more := range detailsOf(flag) {
		text += "\n" + more
	}
	return text
}

// detailsOf returns sentences about a flag in addition to its summary.
func detailsOf(flag *pflag.Flag) (sentences []string) {
	if h := config.HelpOf(flag); h.Details != "" {
		sentences = append(sentences, h.Details)
	}
	if list := config.ValuesOf(flag); len(list) > 1 && flag.Value.Type() != "bool" && !containsWords(flag.Usage, list) {
		sentences = append(sentences, "Values: "+strings.Join(list, ", ")+".")
	}
	if names := config.AliasesOf(flag); len(names) > 0 {
		sentences = append(sentences, "Also --"+strings.Join(names, ", --")+".")
	}
	return sentences
}

// containsWords reports whether a text contains all words of a list.
func containsWords(text string, words []string) bool {
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
}

// wrap breaks lines at the width of help and indents them.
func wrap(text string, column int) string {
	var lines []string
	margin := strings.Repeat(" ", column)
	for line := range strings.SplitSeq(text, "\n") {
		at := margin
		for _, word := range strings.Fields(line) {
			if len(at)+1+len(word) > width && len(at) > column {
				lines = append(lines, at)
				at = margin
			}
			if len(at) > column {
				at += " "
			}
			at += word
		}
		lines = append(lines, at)
	}
	return strings.Join(lines, "\n")
}

// indent indents each line by two blanks.
func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  ")
}
