package cli

import (
	"fmt"
	"strings"

	kubelet "github.com/knarr-project/knarr/internal/kubelet/settings"
)

// kubeletPage is the reference of the fields of KubeletConfiguration.
func kubeletPage() string {
	var b strings.Builder
	b.WriteString("# KubeletConfiguration\n\n" + generated + "\n" + prose("Every field of upstream's `KubeletConfiguration` (kubelet.config.k8s.io/v1beta1, v1.36), and what knarr does with it. "+
		"How to use it is in [settings of a node](../guides/node-settings.md).") + "\n\n")
	b.WriteString("- **works**: every value that upstream accepts.\n- **only the default**: any other value is an error with the reason. A note names further values.\n- **no effect**: upstream documents that the field has none.\n\n")
	b.WriteString("| field | default | knarr | note |\n|---|---|---|---|\n")
	defaults := kubelet.Default()
	for _, f := range kubelet.Fields {
		state := "only the default"
		switch {
		case f.Works:
			state = "works"
		case f.Void:
			state = "no effect"
		}
		note := f.Note
		if why := kubelet.Own[f.Name]; why != "" {
			note = join("knarr's own default: "+why, note)
		}
		if len(f.Also) > 0 {
			note = join("also `"+strings.Join(f.Also, "`, `")+"`", note)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.Name, valueCell(defaults.Value(f.Name)), state, note)
	}
	return b.String()
}

func join(a, b string) string {
	if b == "" {
		return a
	}
	return a + "; " + b
}

// valueCell shows a value in a table.
func valueCell(value string) string {
	if value == "unset" {
		return "–"
	}
	return "`" + strings.Trim(value, `"`) + "`"
}
