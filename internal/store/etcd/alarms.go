package etcd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"

	"github.com/knarr-project/knarr/internal/durable"
)

// ErrCorrupt means that a member's data differs from the other members', or that its files are
// damaged.
var ErrCorrupt = errors.New("the store's data is corrupt")

// corruptMark is a file in the data folder of a member that was found corrupt. It keeps the member
// from starting again.
const corruptMark = "corrupt"

// corruptFor is how long the leader lets the alarm of a corrupt member stand, which stops the whole
// cluster's writes. The member learns of the alarm from the log and stops itself meanwhile.
const corruptFor = 3 * keepEvery

// alarms looks at etcd's alarms, which stand in the database until they are ended. It reports
// whether this member's alarm about its size stands and the file is still too large to end it.
func (k *keeper) alarms(ctx context.Context, size int64) (capped bool) {
	for _, a := range k.e.server.Alarms() {
		id := types.ID(a.MemberID)
		switch {
		case a.Alarm == pb.AlarmType_NOSPACE && id != k.e.server.MemberID() && k.e.server.Cluster().Member(id) != nil:
			// That member ends its alarm.
		case a.Alarm == pb.AlarmType_NOSPACE:
			if capped = size >= k.e.space.hard-k.e.space.reserve/2; !capped {
				k.endAlarm(ctx, a)
			}
		case a.Alarm == pb.AlarmType_CORRUPT:
			k.corrupt(ctx, a)
		}
	}
	return capped
}

func (k *keeper) endAlarm(ctx context.Context, a *pb.AlarmMember) {
	_, err := k.e.server.Alarm(ctx, &pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, MemberID: a.MemberID, Alarm: a.Alarm})
	if err != nil {
		k.report(ctx, "cannot end the alarm of the store", fmt.Errorf("%s of member %s: %w", a.Alarm, types.ID(a.MemberID), err))
		return
	}
	k.log.Info("ended an alarm of the store, since its cause is gone", "alarm", a.Alarm.String(), "member", types.ID(a.MemberID).String())
}

// corrupt handles the alarm that a member's data differs. The member itself stops for good. Of the
// others, the leader ends the alarm after a while, if a majority remains without that member. If
// etcd cannot tell which member is wrong, the alarm stands until an operator restores a snapshot.
func (k *keeper) corrupt(ctx context.Context, a *pb.AlarmMember) {
	id, cluster := types.ID(a.MemberID), k.e.server.Cluster()
	switch {
	case id == k.e.server.MemberID():
		err := fmt.Errorf("%w: a comparison found that the data of this member (%s) differs from the other members'; %s", ErrCorrupt, id, WayBack(k.e.space.disk.dir))
		if markErr := durable.WriteFile(filepath.Join(k.e.space.disk.dir, corruptMark), []byte(err.Error()+"\n")); markErr != nil {
			err = errors.Join(err, markErr)
		}
		k.e.failure.set(err)
		go func() { // its votes and answers must not count any more
			k.e.shutOut()
			k.e.server.HardStop()
		}()
	case k.e.server.Leader() != k.e.server.MemberID() || id == 0:
	case cluster.Member(id) == nil:
		k.endAlarm(ctx, a)
	default:
		since, ok := k.corruptSince[a.MemberID]
		if !ok {
			k.corruptSince[a.MemberID] = time.Now()
			k.log.Error("a member's data differs from the others'; writes wait until it has stopped", "member", id.String(), "name", cluster.Member(id).Name,
				"remedy", "knarr member rm, then remove that server's data folder and join it again")
			return
		}
		if time.Since(since) > corruptFor && voters(k.e) > 2 {
			delete(k.corruptSince, a.MemberID)
			k.endAlarm(ctx, a)
		}
	}
}

// voters counts the members that vote.
func voters(e *Engine) (n int) {
	for _, m := range e.server.Cluster().Members() {
		if !m.IsLearner {
			n++
		}
	}
	return n
}

// corruption is the error of health checks while an alarm about corrupt data stands.
func (e *Engine) corruption() error {
	for _, a := range e.server.Alarms() {
		if a.Alarm != pb.AlarmType_CORRUPT {
			continue
		}
		if a.MemberID == 0 {
			return fmt.Errorf("%w: the members' data differs and no majority agrees; restore a snapshot (knarr snapshot restore)", ErrCorrupt)
		}
		return fmt.Errorf("%w: the data of member %s differs from the other members'; remove it (knarr member rm) and join it again", ErrCorrupt, types.ID(a.MemberID))
	}
	return nil
}

// Health returns an error if the engine has failed, or if its data is corrupt.
func (e *Engine) Health() error {
	done, err := e.read()
	if err != nil {
		return err
	}
	defer done()
	return e.corruption()
}

// alarmed reports whether a proposal was refused because of an alarm. It was applied all the same,
// after everything before it in the log.
func alarmed(err error) bool {
	return errors.Is(err, etcderrors.ErrNoSpace) || errors.Is(err, etcderrors.ErrCorrupt)
}

// WayBack tells the way back from a damaged data folder.
func WayBack(dir string) string {
	return fmt.Sprintf("one of several servers: remove it from the cluster (knarr member rm), remove %s and join again; a server alone: restore a snapshot (knarr snapshot restore)", dir)
}

// checkMark refuses the folder of a member that was found corrupt.
func checkMark(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, corruptMark))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: %s says: %s", ErrCorrupt, filepath.Join(dir, corruptMark), text)
}
