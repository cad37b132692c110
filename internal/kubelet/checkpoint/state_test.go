package checkpoint

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func decodeMap(raw []byte) (*map[string]string, error) {
	var m map[string]string
	return &m, json.Unmarshal(raw, &m)
}

func TestAStateIsReadAsItWasSaved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	if s, err := LoadState(path, "test manager", decodeMap); s != nil || err != nil {
		t.Errorf("without a file: %v, %v", s, err)
	}
	if err := SaveState(path, "test manager", []byte(`{"a":"b"}`)); err != nil {
		t.Fatal(err)
	}
	if s, err := LoadState(path, "test manager", decodeMap); err != nil || (*s)["a"] != "b" {
		t.Errorf("got %v, %v", s, err)
	}
}

func TestTheErrorOfADamagedStateSaysHowToGoOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	for name, content := range map[string]string{"no JSON": "{", "too large": `{"a":"` + strings.Repeat("a", MaxSize) + `"}`} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := LoadState(path, "test manager", decodeMap)
		if err == nil || !strings.HasPrefix(err.Error(), "test manager state "+path) || !strings.HasSuffix(err.Error(), "; drain the node and remove the file") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := SaveState(path, "test manager", make([]byte, MaxSize+1)); err == nil || !strings.Contains(err.Error(), "16777216") {
		t.Errorf("saved too much: %v", err)
	}
}

// FuzzParse reads files that no node agent wrote. What it accepts is written and read again.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", "{}", `{"Data":{},"Checksum":0}`, `{"Data":{"a":[1,null]},"Checksum":14695981039346656037}`, `{"Data":null}`} {
		f.Add([]byte(seed))
	}
	for _, data := range []any{nil, map[string]any{"a": []int{1}}, "text"} {
		path := filepath.Join(f.TempDir(), "seed")
		if err := Write(path, data); err != nil {
			f.Fatal(err)
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	path := filepath.Join(f.TempDir(), "checkpoint")
	f.Fuzz(func(t *testing.T, raw []byte) {
		var data any
		if Parse(raw, &data) != nil {
			return
		}
		if err := Write(path, data); err != nil {
			t.Fatal(err)
		}
		var again any
		if err := Read(path, &again); err != nil || !reflect.DeepEqual(again, data) {
			t.Errorf("%v reads as %v, %v", data, again, err)
		}
		if err := Read(path+"x", &again); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("no file: %v", err)
		}
	})
}
