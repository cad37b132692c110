package etcd

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// onStream writes messages through a paced stream, a few bytes at a time, and returns those that
// the other member gets after each of them.
func onStream(t *testing.T, leader *uint64, now *time.Time, path string) (say func(raftpb.Message) string) {
	t.Helper()
	var w http.ResponseWriter
	got := httptest.NewRecorder()
	paceAnswers(http.HandlerFunc(func(given http.ResponseWriter, _ *http.Request) { w = given }), func() uint64 { return *leader }, func() time.Time { return *now }).
		ServeHTTP(got, httptest.NewRequest(http.MethodGet, path, nil))
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	return func(m raftpb.Message) string {
		t.Helper()
		body, err := m.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		for part := range slices.Chunk(append(binary.BigEndian.AppendUint64(nil, uint64(len(body))), body...), 7) {
			if n, err := w.Write(part); n != len(part) || err != nil {
				t.Fatal(n, err)
			}
		}
		return received(t, got.Body)
	}
}

// received reads all messages and describes them.
func received(t *testing.T, from *bytes.Buffer) string {
	t.Helper()
	var all []string
	for from.Len() > 0 {
		var m raftpb.Message
		if err := m.Unmarshal(from.Next(int(binary.BigEndian.Uint64(from.Next(frameHeader))))); err != nil {
			t.Fatal(err)
		}
		all = append(all, strings.TrimSuffix(fmt.Sprintf("%v %s", m.Type, m.Context), " "))
	}
	return strings.Join(all, ", ")
}

func TestAnswersOfAMemberThatIsBehindArePaced(t *testing.T) {
	tick := raftpb.Message{Type: raftpb.MsgHeartbeatResp}
	read := func(id string) raftpb.Message {
		return raftpb.Message{Type: raftpb.MsgHeartbeatResp, Context: []byte(id)}
	}
	taken := raftpb.Message{Type: raftpb.MsgAppResp, Index: 7}
	gap := raftpb.Message{Type: raftpb.MsgAppResp, Index: 9, Reject: true}
	leader := uint64(1)
	say := onStream(t, &leader, new(time.Time), messageStream+"1")
	for i, step := range []struct {
		leader uint64
		said   raftpb.Message
		want   string
	}{
		{1, tick, "MsgHeartbeatResp"},
		{1, read("a"), ""},
		{1, read("b"), ""},
		{1, raftpb.Message{Type: raftpb.MsgProp}, "MsgProp"},
		{1, raftpb.Message{}, "MsgHup"}, // the stream's own sign of life is such a short message
		{1, tick, "MsgHeartbeatResp b"}, // it answers "a" too
		{1, tick, "MsgHeartbeatResp"},
		{1, read("c"), ""},
		{1, gap, "MsgAppResp"},
		{1, read("d"), ""},
		{1, taken, "MsgAppResp, MsgHeartbeatResp d"},
		{1, read("e"), "MsgHeartbeatResp e"},
		{1, gap, "MsgAppResp"},
		{1, read("f"), ""},
		{0, raftpb.Message{Type: raftpb.MsgPreVote}, "MsgPreVote"},
		{2, read("g"), ""},
		{2, taken, "MsgAppResp, MsgHeartbeatResp g"}, // "f" was another leader's
		{2, read("h"), "MsgHeartbeatResp h"},
	} {
		leader = step.leader
		if got := say(step.said); got != step.want {
			t.Errorf("step %d: %v %s: the leader gets %q, not %q", i, step.said.Type, step.said.Context, got, step.want)
		}
	}
}

// While a read waits, each heartbeat of the leader asks for its confirmation.
func TestReadsOfALeaderThatNeedsAMemberBehindAreConfirmed(t *testing.T) {
	read := raftpb.Message{Type: raftpb.MsgHeartbeatResp, Context: []byte("a")}
	leader, now := uint64(1), time.Unix(1000, 0)
	say := onStream(t, &leader, &now, messageStream+"1")
	for i, want := range []string{"MsgHeartbeatResp a", "", "", "MsgHeartbeatResp a", "", "", "MsgHeartbeatResp a"} {
		if got := say(read); got != want {
			t.Errorf("answer %d: %q, want %q", i, got, want)
		}
		now = now.Add(pace/3 + 1)
	}
}

func TestOtherStreamsAreNotPaced(t *testing.T) {
	leader := uint64(1)
	say := onStream(t, &leader, new(time.Time), "/raft/stream/msgapp/1")
	if got := say(raftpb.Message{Type: raftpb.MsgHeartbeatResp, Context: []byte("a")}); got != "MsgHeartbeatResp a" {
		t.Errorf("got %q", got)
	}
}

func TestARefusedStreamSaysWhy(t *testing.T) {
	got := httptest.NewRecorder()
	paceAnswers(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "removed member", http.StatusGone)
	}), func() uint64 { return 1 }, time.Now).ServeHTTP(got, httptest.NewRequest(http.MethodGet, messageStream+"1", nil))
	if got.Code != http.StatusGone || got.Body.String() != "removed member\n" {
		t.Errorf("%d %q", got.Code, got.Body)
	}
}
