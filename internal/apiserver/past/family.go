package past

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/cache"
	"github.com/knarr-project/knarr/internal/insight/history"
	"github.com/knarr-project/knarr/internal/insight/timeline"
)

// maxRelatives bounds the objects that are examined for their owners.
const maxRelatives = 20000

// family is an object and what it owns, at any time in the range of a question.
type family struct {
	namespace string // of all members, "" if the object has none
	events    string // namespace of the events about it
	keys      map[string]bool
	uids      map[string]bool
	names     map[timeline.Reference]bool // without UIDs
}

// member is an object that may belong to a family.
type member struct {
	key, uid, kind string
	owners         []string
}

// familyOf finds the family of the question's object.
func (p *Past) familyOf(ctx context.Context, q *Question) (*family, error) {
	if q.Resource == "" || q.Name == "" {
		return nil, apierrors.NewBadRequest("related: resource and name must be given")
	}
	root := p.prefixOf(q.Group, q.Resource) + "/"
	if q.Namespace != "" {
		root += q.Namespace + "/"
	}
	root += q.Name
	f := &family{namespace: q.Namespace, events: q.Namespace, keys: map[string]bool{root: true}, uids: map[string]bool{}, names: map[timeline.Reference]bool{}}
	if f.events == "" {
		f.events = metav1.NamespaceDefault
	}
	if s := p.subject(root); s.registry != nil {
		f.names[timeline.Reference{Kind: s.registry.Hub.Kind, Namespace: s.Namespace, Name: s.Name}] = true
	}
	members, err := p.candidates(ctx, q, root)
	if err != nil {
		return nil, err
	}
	f.adopt(p, members)
	return f, nil
}

// adopt adds all members that the family owns, directly or not.
func (f *family) adopt(p *Past, members []member) {
	for i := range members {
		if m := &members[i]; f.keys[m.key] {
			f.uids[m.uid] = true
		}
	}
	for grown := true; grown; {
		grown = false
		for i := range members {
			m := &members[i]
			if f.uids[m.uid] {
				continue
			}
			for _, owner := range m.owners {
				if f.uids[owner] {
					s := p.subject(m.key)
					f.uids[m.uid], f.keys[m.key], grown = true, true, true
					f.names[timeline.Reference{Kind: m.kind, Namespace: s.Namespace, Name: s.Name}] = true
					break
				}
			}
		}
	}
}

// candidates returns the objects of the namespace, as they are and as they were in the range of the
// question.
func (p *Past) candidates(ctx context.Context, q *Question, root string) (list []member, err error) {
	add := func(key string, obj any) {
		acc, err := meta.Accessor(obj)
		if err != nil || len(list) >= maxRelatives {
			return
		}
		m := member{key: key, uid: string(acc.GetUID())}
		if s := p.subject(key); s.registry != nil {
			m.kind = s.registry.Hub.Kind
		}
		for _, owner := range acc.GetOwnerReferences() {
			m.owners = append(m.owners, string(owner.UID))
		}
		if m.uid != "" && (len(m.owners) > 0 || key == root) {
			list = append(list, m)
		}
	}
	for _, r := range p.builtin {
		reader := r.OpenCache()
		if reader == nil || q.Namespace != "" && !r.Kind.Namespaced || q.Namespace == "" && r.Kind.Prefix != p.prefixOf(q.Group, q.Resource) {
			continue
		}
		if s := p.subject(r.Kind.Prefix + "/-"); s.isEvent() || s.isSecret() {
			continue
		}
		reader.Snapshot().Ascend(r.Prefix(q.Namespace), "", func(e *cache.Entry) bool {
			if obj, err := e.Peek(); err == nil {
				add(e.Key, obj)
			}
			return len(list) < maxRelatives
		})
	}
	// Objects that no longer exist, and kinds without a cache.
	known := map[string]bool{}
	for i := range list {
		known[list[i].key+" "+list[i].uid] = true
	}
	consider := func(s *subject, stored []byte, revision int64) {
		doc, err := s.document(stored, revision)
		if err != nil {
			return
		}
		if obj := doc.object(); !known[s.key+" "+string(obj.GetUID())] {
			known[s.key+" "+string(obj.GetUID())] = true
			add(s.key, obj)
		}
	}
	err = p.Log.Each(ctx, history.Query{Since: q.Since, Namespace: q.Namespace}, func(c history.Change) bool {
		s := p.subject(c.Key)
		if s.isEvent() || s.isSecret() || s.Namespace != q.Namespace || q.Namespace == "" && c.Key != root {
			return true
		}
		if c.Before != nil {
			if state, err := p.unsealed(ctx, c.Key, c.Before); err == nil {
				consider(&s, state, c.BeforeRevision)
			}
		} else if s.registry == nil && c.Effect == history.Created {
			if state, err := p.stateAt(ctx, &s, c.Revision); err == nil {
				consider(&s, state, c.Revision)
			}
		}
		return len(known) < maxRelatives
	})
	return list, err
}

// concerns reports whether an event is about a member.
func (f *family) concerns(e *timeline.Event) bool {
	if e == nil {
		return false
	}
	about := e.Regarding
	if f.uids[about.UID] {
		return true
	}
	about.UID = ""
	return f.names[about]
}
