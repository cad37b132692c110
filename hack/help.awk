# help.awk: prints the targets of a Makefile in groups. See the comment above the target `help`.
/^##@ / { printf "%s%s\n", separator, substr($0, 5); separator = "\n" }
/^[a-z][a-z0-9-]*:.*## / {
  name = $1; sub(/:.*/, "", name)
  text = $0; sub(/.*## /, "", text)
  printf "  make %-15s %s\n", name, text
}
/^#  [A-Z]+=/ { printf "  %22s %s\n", "", substr($0, 4) }
