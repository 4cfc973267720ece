package book

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// question is which Servers an Allocation asks for.
type question struct {
	// target is kind/name; empty: the namespace.
	target string
	labels map[string]v1alpha1.LabelValue
}

// key distinguishes questions, whatever is in their labels.
func (q question) key() string {
	var b strings.Builder
	b.WriteString(q.target)
	for _, name := range slices.Sorted(maps.Keys(q.labels)) {
		b.WriteString(strconv.Quote(name) + strconv.Quote(string(q.labels[name])))
	}
	return b.String()
}

// need is what an Allocation asks for.
type need struct {
	question
	view string
	// places is how many; 0: a whole Server.
	places      int
	distributed bool
	near        *v1alpha1.AllocationNear
}

func needOf(o *v1alpha1.Allocation) need {
	n := need{places: int(o.Spec.Players), distributed: o.Spec.Preference.Strategy == v1alpha1.AllocationDistributed, near: o.Spec.Preference.Near}
	if ref := o.Spec.TargetRef; ref != nil {
		kind := ref.Kind
		if kind == "" {
			kind = v1alpha1.AllocationTargetGameType
		}
		n.target = TargetKey(string(kind), ref.Name)
	}
	if o.Spec.Selector != nil {
		n.labels = o.Spec.Selector.MatchLabels
	}
	n.view = n.key()
	return n
}

// slot is where a view has a Server.
type slot struct {
	node string
	room room
	held bool
}

// placed is where one of the views has a Server.
type placed struct {
	in *view
	slot
}

// view has the Servers of a question in the order in which they are given.
type view struct {
	question question
	// used is when it was asked last, as a count.
	used int
	// shared are the Servers that have places, by how many.
	shared ranked[*server]
	// nodes are those of its Servers, and whole those with Servers that can be given as a whole, by how
	// many of the node's are held.
	nodes map[string]*viewNode
	whole ranked[*viewNode]
}

// viewNode is a node in a view.
type viewNode struct {
	name    string
	servers int
	held    int
	whole   set[*server]
	shared  ranked[*server]
}

// update puts a Server where it belongs now.
func (v *view) update(s *server, now room) {
	i := slices.IndexFunc(s.slots, func(p placed) bool { return p.in == v })
	had, has := i >= 0, s.fills(v.question)
	var was, is slot
	if had {
		was = s.slots[i].slot
	}
	if has {
		is = slot{node: s.node(), room: now, held: len(s.holds) > 0}
	}
	if has == had && is == was {
		return
	}
	if had {
		v.take(s, was)
		s.slots = slices.Delete(s.slots, i, i+1)
	}
	if has {
		v.put(s, is)
		s.slots = append(s.slots, placed{in: v, slot: is})
	}
}

func (v *view) put(s *server, at slot) {
	n := v.nodes[at.node]
	if n == nil {
		n = &viewNode{name: at.node}
		v.nodes[at.node] = n
	}
	v.rerank(n, func() {
		n.servers++
		if at.held {
			n.held++
		}
		if at.room.whole {
			n.whole.add(s)
		}
	})
	if at.room.places > 0 {
		n.shared.add(at.room.places, s)
		v.shared.add(at.room.places, s)
	}
}

func (v *view) take(s *server, at slot) {
	n := v.nodes[at.node]
	v.rerank(n, func() {
		n.servers--
		if at.held {
			n.held--
		}
		n.whole.remove(s)
	})
	if at.room.places > 0 {
		n.shared.remove(at.room.places, s)
		v.shared.remove(at.room.places, s)
	}
	if n.servers == 0 {
		delete(v.nodes, at.node)
	}
}

// rerank changes a node.
func (v *view) rerank(n *viewNode, change func()) {
	if len(n.whole.items) > 0 {
		v.whole.remove(n.held, n)
	}
	change()
	if len(n.whole.items) > 0 {
		v.whole.add(n.held, n)
	}
}

// choose finds a Server; nil: none has room. Labels are those of nodes. Where the nodes near something
// come first each node of the view may be looked at, and no Server.
func (v *view) choose(n *need, labels map[string]map[string]string) *server {
	if n.near != nil {
		near := func(node *viewNode) bool {
			value, ok := labels[node.name][n.near.Key]
			return ok && value == n.near.Value
		}
		if s := v.chooseNear(n, near); s != nil {
			return s
		}
	}
	if n.places > 0 {
		s, _, _ := v.shared.first(n.places, n.distributed, nil)
		return s
	}
	return v.chooseWhole(n, nil)
}

func (v *view) chooseWhole(n *need, wanted func(*viewNode) bool) *server {
	node, _, ok := v.whole.first(0, !n.distributed, wanted)
	if !ok {
		return nil
	}
	return node.whole.items[len(node.whole.items)-1]
}

func (v *view) chooseNear(n *need, near func(*viewNode) bool) *server {
	if n.places == 0 {
		return v.chooseWhole(n, near)
	}
	var best *server
	var most int
	for _, node := range v.nodes {
		if !near(node) {
			continue
		}
		s, places, ok := node.shared.first(n.places, n.distributed, nil)
		if ok && (best == nil || n.distributed == (places > most) && places != most) {
			best, most = s, places
		}
	}
	return best
}
