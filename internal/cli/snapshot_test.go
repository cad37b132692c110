package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/knarr-project/knarr/internal/clusters"
	"github.com/knarr-project/knarr/internal/snapshots"
	"github.com/knarr-project/knarr/internal/snapshots/s3test"
	"github.com/knarr-project/knarr/internal/store"
	"github.com/knarr-project/knarr/internal/store/etcd"
	"github.com/knarr-project/knarr/test/docs"
)

// stoppedServer makes the data folder of a stopped server, whose last start had these flags.
func stoppedServer(t *testing.T, flags ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	for name, data := range map[string]string{"pki/ca.crt": "ours", "pki/ca.key": "secret", "pki/sa.key": "tokens"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(data), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	r := clusters.Record{DataDir: dir, Name: "stopped", Role: "server", Flags: flags}
	if err := r.Save(); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "/registry/things/a")
	return dir
}

// write writes a key into the store of a stopped server.
func write(t *testing.T, dataDir, key string) {
	t.Helper()
	db := openStopped(t, dataDir)
	defer db.Close()
	if _, err := db.Commit(t.Context(), nil, store.Op{Key: key, Value: []byte("1")}); err != nil {
		t.Fatal(err)
	}
}

func openStopped(t *testing.T, dataDir string) *etcd.Engine {
	t.Helper()
	db, err := etcd.Open(t.Context(), etcd.Options{DataDir: filepath.Join(dataDir, "etcd"), UnsafeNoSync: true, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// has reports whether the store of a stopped server has a key.
func has(t *testing.T, dataDir, key string) bool {
	t.Helper()
	db := openStopped(t, dataDir)
	defer db.Close()
	kv, _, err := db.Get(t.Context(), key, 0)
	if err != nil {
		t.Fatal(err)
	}
	return kv != nil
}

func must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := typed(t, args...)
	if err != nil {
		t.Fatalf("knarr %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func refused(t *testing.T, want string, args ...string) {
	t.Helper()
	out, err := typed(t, args...)
	if err == nil || !strings.Contains(out+err.Error(), want) {
		t.Errorf("knarr %s: %v, want %q\n%s", strings.Join(args, " "), err, want, out)
	}
}

// ageKeys writes an identity and its recipient.
func ageKeys(t *testing.T, dir string) {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "identity.txt"), []byte(id.String()+"\n"), 0o600), os.WriteFile(filepath.Join(dir, "recipients.txt"), []byte(id.Recipient().String()+"\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func TestSnapshotsOfAStoppedServer(t *testing.T) {
	dir, out := stoppedServer(t), t.TempDir()
	file := filepath.Join(out, "before.db")
	must(t, "snapshot", "save", "--data-dir", dir, file)
	write(t, dir, "/registry/things/b")
	if said := must(t, "snapshot", "ls", "--data-dir", dir, file); !strings.Contains(said, "objects   yes") {
		t.Errorf("ls:\n%s", said)
	}
	if said := must(t, "snapshot", "check", "--data-dir", dir, file); !strings.Contains(said, "good: revision") {
		t.Errorf("check:\n%s", said)
	}
	refused(t, "--force", "snapshot", "restore", "--data-dir", dir, file)
	refused(t, "is a folder", "snapshot", "restore", "--data-dir", dir, out)
	refused(t, "is one snapshot", "snapshot", "restore", "--data-dir", dir, "--at", "newest", file)
	refused(t, "at: \"yesterday\" is not usable", "snapshot", "restore", "--data-dir", dir, "--at", "yesterday", out)
	must(t, "snapshot", "restore", "--data-dir", dir, "--force", file)
	if has(t, dir, "/registry/things/b") || !has(t, dir, "/registry/things/a") {
		t.Error("the restored store has other keys than the snapshot")
	}
	if written, err := snapshots.ReadWritten(dir); err != nil || written == nil || written.By != snapshots.CurrentWriter() {
		t.Errorf("the note about the version: %+v, %v", written, err)
	}

	must(t, "snapshot", "save", "--data-dir", dir)
	refused(t, "newest good", "snapshot", "rm", "--data-dir", dir, file)
	must(t, "snapshot", "rm", "--data-dir", dir, "--force", file)
	if left, _ := filepath.Glob(filepath.Join(out, "*")); len(left) > 0 {
		t.Errorf("rm has left %v", left)
	}
	refused(t, "there is no file", "snapshot", "rm", "--data-dir", dir, file)
}

func TestASnapshotWithKeysMakesTheSameClusterElsewhere(t *testing.T) {
	dir, keys := stoppedServer(t), t.TempDir()
	ageKeys(t, keys)
	must(t, "snapshot", "save", "--data-dir", dir, "--snapshot-with-keys", "--snapshot-key-file", filepath.Join(keys, "recipients.txt"))
	folder := filepath.Join(dir, "snapshots")
	if said := must(t, "snapshot", "ls", "--data-dir", dir); !strings.Contains(said, ".tar.age") || !strings.Contains(said, "objects+keys, encrypted") {
		t.Errorf("ls:\n%s", said)
	}
	elsewhere := filepath.Join(t.TempDir(), "new")
	refused(t, "only recipients", "snapshot", "restore", "--data-dir", elsewhere, "--at", "newest", "--snapshot-key-file", filepath.Join(keys, "recipients.txt"), folder)
	restore := []string{"snapshot", "restore", "--data-dir", elsewhere, "--at", "newest", "--snapshot-key-file", filepath.Join(keys, "identity.txt"), folder}
	if said := must(t, restore...); !strings.Contains(said, "keys are restored") {
		t.Errorf("restore:\n%s", said)
	}
	if data, err := os.ReadFile(filepath.Join(elsewhere, "pki", "ca.key")); err != nil || string(data) != "secret" {
		t.Errorf("the restored key: %q, %v", data, err)
	}
	if !has(t, elsewhere, "/registry/things/a") {
		t.Error("the restored store lacks a key")
	}
	if err := os.WriteFile(filepath.Join(elsewhere, "pki", "ca.crt"), []byte("another cluster's"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(elsewhere, "etcd")); err != nil {
		t.Fatal(err)
	}
	refused(t, "another cluster's keys", restore...)
	if said := must(t, append(restore, "--force")...); !strings.Contains(said, "pki.before-") {
		t.Errorf("restore:\n%s", said)
	}
}

// TestS3TheOperationsPagesCommandsRun runs each `knarr snapshot` of the pages, in their
// order, for a stopped server with a bucket in a real S3 server.
func TestS3TheOperationsPagesCommandsRun(t *testing.T) {
	var commands []docs.Link
	for _, name := range []string{"docs/operations/snapshots.md", "docs/operations/restore.md"} {
		page, err := docs.ReadPage("../..", name)
		if err != nil {
			t.Fatal(err)
		}
		commands = append(commands, page.Commands("knarr")...)
	}
	server := s3test.Start(t, "backups")
	work := t.TempDir()
	ageKeys(t, work)
	t.Chdir(work)
	dir := stoppedServer(t, "--snapshot-s3-bucket=backups", "--snapshot-s3-prefix=one", "--snapshot-s3-endpoint="+server.URL,
		"--snapshot-s3-ca="+server.CA, "--snapshot-s3-credentials-file="+server.Credentials)
	takeLongAgo(t, dir, server)
	ran := 0
	for _, c := range commands {
		words := docs.Words(c.Target)[1:]
		placeholder := slices.ContainsFunc(words, func(w string) bool { return w == "FILE" || w == "$when" || w == "s3://BUCKET/PREFIX" })
		if len(words) < 2 || words[0] != "snapshot" || placeholder {
			continue
		}
		for i := range words {
			words[i] = strings.NewReplacer("https://s3.example.com", server.URL, "/var/lib/trial", filepath.Join(t.TempDir(), "trial")).Replace(words[i])
		}
		if !slices.Contains(words, "--data-dir") {
			words = append(words, "--data-dir", dir)
		}
		if words[1] == "restore" {
			words = append(words, "--force") // the page restores on a machine without a store
		}
		if (words[1] == "check" || words[1] == "restore") && !slices.Contains(words, "--snapshot-key-file") {
			// The page has saved encrypted ones.
			words = append(words, "--snapshot-key-file", "identity.txt")
		}
		out, err := typed(t, words...)
		if err != nil {
			t.Errorf("line %d: %s: %v\n%s", c.Line, c.Target, err, out)
		}
		ran++
	}
	if ran < 12 {
		t.Errorf("%d commands ran, the pages have more", ran)
	}
}

// takeLongAgo puts a snapshot of 2025 into the folder and the bucket.
func takeLongAgo(t *testing.T, dir string, server *s3test.Server) {
	t.Helper()
	db := openStopped(t, dir)
	defer db.Close()
	bucket, err := snapshots.NewS3(snapshots.S3Options{Endpoint: server.URL, Bucket: "backups", Prefix: "one", Credentials: server.Credentials, CA: server.CA})
	if err != nil {
		t.Fatal(err)
	}
	folder := snapshots.Folder(filepath.Join(dir, "snapshots"))
	w, err := snapshots.NewWork(folder.String())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	long := time.Date(2025, 12, 1, 0, 0, 0, 0, time.UTC)
	taken, err := snapshots.Take(t.Context(), w, snapshots.Request{
		Name: snapshots.ScheduledName("one", long), Stream: db.Snapshot, Now: func() time.Time { return long }, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Content: func(ctx context.Context, at int64) (snapshots.Content, error) {
			return snapshots.ContentOf(ctx, db, at)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(bucket.Put(t.Context(), taken), folder.Put(t.Context(), taken)); err != nil {
		t.Fatal(fmt.Errorf("put: %w", err))
	}
}
