package snapshots

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/knarr-project/knarr/internal/snapshots/s3test"
)

func s3Place(t *testing.T, s *s3test.Server, change func(*S3Options)) *S3 {
	t.Helper()
	o := S3Options{Endpoint: s.URL, Bucket: "backups", Prefix: "clusters/one", Region: "us-east-1", Credentials: s.Credentials, CA: s.CA}
	if change != nil {
		change(&o)
	}
	p, err := NewS3(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestS3KeepsSnapshots(t *testing.T) {
	server := s3test.Start(t, "backups")
	place, db, work := s3Place(t, server, nil), openStore(t), newWork(t, t.TempDir())
	if list, err := place.List(t.Context()); err != nil || len(list) != 0 {
		t.Fatalf("an empty bucket: %v, %v", list, err)
	}
	// Large enough for an upload in parts.
	for i := range 20 {
		put(t, db, fmt.Sprintf("/registry/large/%d", i), strings.Repeat(fmt.Sprint(i%10), 1<<20))
	}
	taken, err := Take(t.Context(), work, request(db, "knarr-20260101T000000Z"))
	if err != nil {
		t.Fatal(err)
	}
	if taken.Record.Size < partSize {
		t.Fatalf("%d bytes are one part", taken.Record.Size)
	}
	for range 2 { // the second one replaces the first
		if err := place.Put(t.Context(), taken); err != nil {
			t.Fatal(err)
		}
	}
	list, err := place.List(t.Context())
	if err != nil || len(list) != 1 || !list[0].Good() || *list[0].Record != taken.Record {
		t.Fatalf("listed: %+v, %v", list, err)
	}
	name := list[0].Name
	path, record, err := Fetch(t.Context(), place, name, work)
	if err != nil {
		t.Fatal(err)
	}
	opened, err := Open(path, work, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := opened.Content(t.Context(), work, record, quiet()); err != nil {
		t.Error(err)
	}

	file := filepath.Join(server.Folder, "backups", "clusters", "one", name)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.Clone(whole)
	changed[len(changed)/3] ^= 1
	for what, data := range map[string][]byte{"a changed": changed, "a shorter": whole[:len(whole)-512]} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := Fetch(t.Context(), place, name, newWork(t, t.TempDir()))
		if err == nil || !strings.Contains(err.Error(), "s3://backups/clusters/one/"+name) {
			t.Errorf("%s file there: %v", what, err)
		}
	}
	if err := place.Remove(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if err := place.Remove(t.Context(), name); err != nil {
		t.Errorf("removed again: %v", err)
	}
	if list, err := place.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("after the removal: %v, %v", list, err)
	}
	if _, err := place.Get(t.Context(), name); !errors.Is(err, ErrNotFound) {
		t.Errorf("a removed one: %v", err)
	}
}

func TestS3ListsMoreThanAPage(t *testing.T) {
	server := s3test.Start(t, "backups")
	folder := filepath.Join(server.Folder, "backups", "clusters", "one")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	const many = 2300 // a page has 1000
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range many {
		name := ScheduledName("one", begin.Add(time.Duration(i)*time.Minute)) + plainEnding
		if err := os.WriteFile(filepath.Join(folder, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	place := s3Place(t, server, nil)
	list, err := place.List(t.Context())
	if err != nil || len(list) != many {
		t.Fatalf("%d of %d snapshots, %v", len(list), many, err)
	}
	// A good one, newer than all of these bad ones: they are removed.
	db := openStore(t)
	taken, err := Take(t.Context(), newWork(t, t.TempDir()), request(db, ScheduledName("one", begin.AddDate(1, 0, 0))))
	if err != nil {
		t.Fatal(err)
	}
	taken.Record.Taken = begin.AddDate(1, 0, 0)
	if err := place.Put(t.Context(), taken); err != nil {
		t.Fatal(err)
	}
	removed, err := Prune(t.Context(), place, Retention{Keep: 1}, begin.AddDate(1, 0, 0))
	if err != nil || len(removed) != many {
		t.Errorf("removed %d of %d, %v", len(removed), many, err)
	}
	if names := goodIn(t, place); len(names) != 1 {
		t.Errorf("left: %v", names)
	}
}

func TestS3ErrorsNameTheBucketAndTheKey(t *testing.T) {
	server := s3test.Start(t, "backups")
	wrong := filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(wrong, []byte("[default]\naws_access_key_id = a\naws_secret_access_key = b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for what, change := range map[string]func(*S3Options){
		"no such bucket":    func(o *S3Options) { o.Bucket = "elsewhere" },
		"wrong credentials": func(o *S3Options) { o.Credentials = wrong },
		"an unknown CA":     func(o *S3Options) { o.CA = "" },
		"no server":         func(o *S3Options) { o.Endpoint = "http://127.0.0.1:1" },
	} {
		place := s3Place(t, server, change)
		if _, err := place.List(ctx); err == nil || !strings.Contains(err.Error(), place.At("")) {
			t.Errorf("%s: list: %v", what, err)
		}
		if _, err := place.Get(ctx, "s.db"); err == nil || !strings.Contains(err.Error(), place.At("s.db")) {
			t.Errorf("%s: get: %v", what, err)
		}
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	if _, err := NewS3(S3Options{Bucket: "b"}); err == nil || !strings.Contains(err.Error(), "snapshot-s3-credentials-file") {
		t.Errorf("without credentials: %v", err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", s3test.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", s3test.SecretKey)
	place := s3Place(t, server, func(o *S3Options) { o.Credentials = "" })
	if _, err := place.List(ctx); err != nil {
		t.Errorf("with credentials of the environment: %v", err)
	}
}
