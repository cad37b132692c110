package etcd

import (
	"encoding/binary"
	"net/http"
	"strings"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// A leader confirms each read index by a heartbeat of its own, up to some thousand a second. It
// sends the next part of the log, up to 1 MiB, for each answer of a member whose place in the log
// it does not know yet. Such a member has been cut off or has a new leader. Thousands of answers
// then made the leader send the same part thousands of times: gigabytes, for a minute or longer.
//
// So such a member answers these heartbeats together, ten times a second. An answer confirms all
// earlier read indexes too, and the leader repeats nothing once the member has taken a part. The
// leader repeats the newest unconfirmed heartbeat at its clock, so the next answer comes.

// pace is the shortest time between two answers of such a member for read indexes. It is less than
// the leader's clock, so that an answer to the clock is not held.
const pace = 80 * time.Millisecond

// messageStream is the path of the stream that carries all messages of raft but parts of the log.
const messageStream = "/raft/stream/message/"

// paceAnswers serves other members by next. It paces the answers to a leader. leader returns the
// current one, 0 for none.
func paceAnswers(next http.Handler, leader func() uint64, now func() time.Time) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f, ok := w.(http.Flusher); ok && strings.HasPrefix(r.URL.Path, messageStream) {
			w = &pacedAnswers{ResponseWriter: w, Flusher: f, leader: leader, now: now, behind: true}
		}
		next.ServeHTTP(w, r)
	})
}

// pacedAnswers is a stream of messages to one other member. etcd writes to it from one goroutine.
type pacedAnswers struct {
	http.ResponseWriter
	http.Flusher
	leader func() uint64
	now    func() time.Time

	refused  bool   // the request failed, so that the answer is a text
	begun    []byte // a message that is not complete yet
	followed uint64 // the leader at the last message
	// behind means that the leader may not know this member's place in its log.
	behind bool
	held   []byte    // the newest answer for a read index that has not been sent
	sent   time.Time // the last answer for a read index
}

// frameHeader is the length of a message's length.
const frameHeader = 8

func (a *pacedAnswers) WriteHeader(code int) {
	a.refused = code != http.StatusOK
	a.ResponseWriter.WriteHeader(code)
}

func (a *pacedAnswers) Write(p []byte) (int, error) {
	if a.refused {
		return a.ResponseWriter.Write(p)
	}
	a.begun = append(a.begun, p...)
	for len(a.begun) >= frameHeader {
		length := binary.BigEndian.Uint64(a.begun)
		if length > uint64(len(a.begun)-frameHeader) {
			return len(p), nil
		}
		frame := a.begun[:frameHeader+length]
		if err := a.send(frame); err != nil {
			return 0, err
		}
		a.begun = a.begun[len(frame):]
	}
	if len(a.begun) == 0 {
		a.begun = nil // a proposal may be large
	}
	return len(p), nil
}

// send writes one message, or holds it.
func (a *pacedAnswers) send(frame []byte) error {
	if leader := a.leader(); leader != a.followed {
		a.followed, a.behind, a.held = leader, true, nil
	}
	var m raftpb.Message
	if !isAnswer(frame[frameHeader:]) || m.Unmarshal(frame[frameHeader:]) != nil {
		_, err := a.ResponseWriter.Write(frame)
		return err
	}
	switch {
	case m.Type == raftpb.MsgAppResp:
		a.behind = m.Reject
	case !a.behind:
	case len(m.Context) > 0:
		if now := a.now(); now.Sub(a.sent) >= pace {
			a.sent, a.held = now, nil
			break
		}
		a.held = append(a.held[:0], frame...)
		return nil
	case len(a.held) > 0: // at the leader's clock; it says the same, and more
		frame, a.held = a.held, nil
	}
	_, err := a.ResponseWriter.Write(frame)
	if err == nil && !a.behind && len(a.held) > 0 {
		_, err = a.ResponseWriter.Write(a.held)
		a.held = nil
	}
	return err
}

// isAnswer reports whether a message answers a heartbeat or a part of the log. The type is the
// first field of a message.
func isAnswer(message []byte) bool {
	if len(message) < 2 || message[0] != 1<<3 {
		return false
	}
	t := raftpb.MessageType(message[1])
	return t == raftpb.MsgHeartbeatResp || t == raftpb.MsgAppResp
}
