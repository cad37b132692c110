package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// Validate returns an error for each field that is invalid or that knarr does not support.
func (s *Settings) Validate() error {
	have, err := tree(&s.KubeletConfiguration)
	if err != nil {
		return err
	}
	defaults, err := tree(&Default().KubeletConfiguration)
	if err != nil {
		return err
	}
	var errs []error
	bad := func(field, value, allowed string) {
		where := ""
		if file := s.Source(field); file != "" {
			where = file + ": "
		}
		errs = append(errs, fmt.Errorf("%s%s: %s is not usable: %s", where, field, value, allowed))
	}
	for _, f := range Fields {
		if f.Works || f.Void {
			continue
		}
		value, _ := lookup(have, f.Name)
		standard, _ := lookup(defaults, f.Name)
		if zero(value) || reflect.DeepEqual(value, standard) || slices.Contains(f.Also, fmt.Sprint(value)) {
			continue
		}
		allowed := append([]string{text(standard)}, f.Also...)
		bad(f.Name, text(value), fmt.Sprintf("only %s is supported: %s", strings.Join(allowed, " or "), f.Note))
	}
	s.validate(bad)
	return errors.Join(errs...)
}

// tree returns the fields as in JSON.
func tree(c *kubeletconfig.KubeletConfiguration) (map[string]any, error) {
	encoded, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	return out, json.Unmarshal(encoded, &out)
}

// Value returns the field's value for messages and documentation.
func (s *Settings) Value(field string) string {
	have, err := tree(&s.KubeletConfiguration)
	if err != nil {
		return ""
	}
	value, _ := lookup(have, field)
	return text(value)
}

func text(v any) string {
	if v == nil {
		return "unset"
	}
	encoded, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(encoded)
}
