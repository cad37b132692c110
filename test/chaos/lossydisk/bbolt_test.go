package lossydisk

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.etcd.io/bbolt"
)

// Environment of the child, which writes until it is killed. The child and not the test maps the
// database: a page fault of the process that serves the file system could wait for itself.
const (
	childDatabase = "LOSSYDISK_DATABASE"
	childCheck    = "LOSSYDISK_CHECK" // the number of transactions that must be there
)

func TestMain(m *testing.M) {
	if path := os.Getenv(childDatabase); path != "" {
		if err := useDatabase(path); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

var bucket = []byte("numbers")

// useDatabase checks the database and prints the number of its transactions. It adds transactions
// and prints each number, unless it only checks.
func useDatabase(path string) error {
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	next := uint64(0)
	err = db.Update(func(tx *bbolt.Tx) error {
		for err := range tx.Check() {
			return err
		}
		b, err := tx.CreateBucketIfNotExists(bucket)
		if err != nil {
			return err
		}
		return b.ForEach(func(key, value []byte) error {
			if n := binary.BigEndian.Uint64(key); n != next || string(value) != valueOf(n) {
				return fmt.Errorf("transaction %d is where %d is expected, with %d bytes", n, next, len(value))
			}
			next++
			return nil
		})
	})
	if err != nil {
		return err
	}
	if text := os.Getenv(childCheck); text != "" {
		if want, _ := strconv.ParseUint(text, 10, 64); next < want {
			return fmt.Errorf("%d transactions are there, %d were acknowledged", next, want)
		}
		fmt.Println("ack", next)
		return nil
	}
	for ; ; next++ {
		err := db.Update(func(tx *bbolt.Tx) error {
			return tx.Bucket(bucket).Put(binary.BigEndian.AppendUint64(nil, next), []byte(valueOf(next)))
		})
		if err != nil {
			return err
		}
		fmt.Println("ack", next+1)
	}
}

func valueOf(n uint64) string { return strings.Repeat(fmt.Sprint(n, " "), int(n%97)) }

// child starts a process that uses the database.
func child(t *testing.T, path string, env ...string) (*exec.Cmd, io.Reader) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=none")
	cmd.Env = append(append(os.Environ(), childDatabase+"="+path), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	return cmd, out
}

// bbolt maps its file, writes with pwrite and syncs with fdatasync. None of its transactions may be
// lost by kill -9 and a crash of the disk.
func TestADatabaseSurvivesCrashes(t *testing.T) {
	d := mounted(t)
	acked := uint64(0)
	for seed := range uint64(12) {
		random := rand.New(rand.NewPCG(seed, 1))
		cmd, out := child(t, d.path("db"))
		lines := bufio.NewScanner(out)
		for n := 1 + random.IntN(100); n > 0 && lines.Scan(); n-- {
			if _, err := fmt.Sscanf(lines.Text(), "ack %d", &acked); err != nil {
				t.Fatalf("seed %d: the child: %s", seed, lines.Text())
			}
		}
		_ = cmd.Process.Kill()
		for lines.Scan() { // acknowledged before it died
			_, _ = fmt.Sscanf(lines.Text(), "ack %d", &acked)
		}
		_ = cmd.Wait()
		if seed == 0 {
			syncDir(t, d.dir) // bbolt does not sync the folder of a new database
		}
		lost := crash(t, d, seed)
		cmd, out = child(t, d.path("db"), childCheck+"="+fmt.Sprint(acked))
		text, _ := io.ReadAll(out)
		if err := cmd.Wait(); err != nil {
			t.Fatalf("seed %d: after the loss of %+v: %v: %s", seed, lost, err, text)
		}
	}
	t.Logf("%d transactions, %d syncs", acked, d.Syncs())
}
