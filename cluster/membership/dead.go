package membership

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"example.org/mta/cluster/postgres"
	"example.org/mta/internal/smallfile"
)

// Dead is a node that has left a data directory behind.
type Dead struct {
	Number      uint16
	Name        string // the nodeid of its relay
	incarnation uint64
}

// Is reports whether a member's row is that of the dead node, and not of a relay that has its number since.
func (d Dead) Is(row postgres.Member) bool {
	return row.Number == d.Number && row.Incarnation == d.incarnation
}

// Dead returns whose data directory one is by the file that package node keeps there. It is a Refusal while that node
// answers, unless its machine is known to be off; for a copy that is older than the directory that it has used last;
// for the directory of another cluster; and while members have other versions. After the node was forgotten, off takes
// an old copy, too.
//
// A node that reads its row notes that in the directory. What it does while it can't reach the database, and in the
// last seconds, can't be known.
func (m *Membership) Dead(ctx context.Context, path string, off bool) (d Dead, err error) {
	have, err := read(path)
	if err != nil {
		return d, Refusal(fmt.Sprintf("%s: %v: it names the node; start a relay without a cluster block on the "+
			"directory, and move its queue by 'mta queue export' and 'mta queue import'", path, err))
	}
	own, err := read(m.cfg.Path)
	if err != nil {
		return d, fmt.Errorf("%s: %w", m.cfg.Path, err)
	}
	view, err := m.cfg.reader.View(ctx)
	if err != nil {
		return d, err
	}
	d = Dead{have.Node, have.Name, have.Incarnation}
	// What an earlier version sends and answers about moves is not by whose mail it is.
	if mixed := m.mixed(d.Number); mixed != "" {
		return d, Refusal(fmt.Sprintf("%s, and this one %s: upgrade the nodes first, and forget those that are gone",
			mixed, m.cfg.Version))
	}
	row := find(view, d.Number)
	if d.Number == m.number && row != nil && row.Incarnation == have.Incarnation {
		return d, Refusal("it is this relay's, or a copy of that")
	}
	return d, d.may(have, own, row, view.Now, off)
}

// Newest returns whether the node of a data directory, of which the file is that of package node, was forgotten, by its
// row; without the file, whether it may join. It is a Refusal if the directory is an older copy, or another one has
// joined since.
func Newest(ctx context.Context, e interface {
	View(context.Context) (postgres.View, error)
}, path string, node uint16,
) (forgotten bool, err error) {
	have, err := read(path)
	if err != nil && !errors.As(err, new(*fs.PathError)) {
		return false, damaged(path, err)
	}
	if err != nil {
		return false, err
	}
	view, err := e.View(ctx)
	if err != nil {
		return false, err
	}
	switch row := find(view, node); {
	case have.Incarnation == 0:
		return row == nil || row.Forgotten, nil
	case row == nil || row.Incarnation < have.Incarnation: // see package membership
		return false, nil
	case row.Incarnation > have.Incarnation && !row.Forgotten, have.behind(row):
		return false, final{Refusal(fmt.Sprintf("node %d: %s is an old copy of its data directory: another one was "+
			"used since", node, filepath.Dir(path)))}
	default:
		return row.Incarnation > have.Incarnation, nil
	}
}

// Forget has the node of a directory that is lost take no part any more, so that an empty one joins anew. It is an
// error while the node answers.
func Forget(ctx context.Context, e interface {
	View(context.Context) (postgres.View, error)
	Fence(ctx context.Context, node uint16, incarnation uint64, dead bool) error
}, node uint16,
) error {
	view, err := e.View(ctx)
	if err != nil {
		return err
	}
	row := find(view, node)
	if row == nil || row.Forgotten {
		return nil
	}
	return e.Fence(ctx, node, row.Incarnation, false)
}

func damaged(path string, err error) error {
	return final{Refusal(fmt.Sprintf("%s: %v; 'mta cluster rejoin' has this relay join anew", path, err))}
}

// Gone is the beginning of a data directory that is made of what others have of a node's files: it returns a function
// that writes the file of package node, and which incarnation of the node that was: the given one, 0: that of its row.
// It is a Refusal while the node answers, unless its machine is known to be off.
func (m *Membership) Gone(ctx context.Context, number uint16, off bool, incarnation uint64) (
	leave func(path string) error, of uint64, err error,
) {
	view, err := m.cfg.reader.View(ctx)
	if err != nil {
		return nil, 0, err
	}
	row := find(view, number)
	mixed := m.mixed(number)
	switch {
	case mixed != "":
		return nil, 0, Refusal(fmt.Sprintf("%s, and this one %s: upgrade the nodes first", mixed, m.cfg.Version))
	case row == nil:
		return nil, 0, Refusal(fmt.Sprintf("the database has no row of node %d, by which its name is known", number))
	case number == m.number && incarnation == 0:
		return nil, 0, Refusal("it is this node")
	case !row.Forgotten && row.Ago < absent.Seconds() && !off:
		return nil, 0, Refusal(answers(row))
	}
	k := kept{Node: number, Name: row.Name, Incarnation: row.Incarnation, Process: row.Process,
		Seen: max(float64(row.Noted)/1e6, view.Now-row.Ago)}
	if row.Forgotten {
		k.Incarnation--
	}
	k.Incarnation = cmp.Or(incarnation, k.Incarnation)
	return func(path string) error { return smallfile.WriteObject(path, 0o600, &k) }, k.Incarnation, nil
}

// answers is why the mail of a node stays its own.
func answers(row *postgres.Member) string {
	return fmt.Sprintf("node %d at %s answered %.0fs ago: stop it and wait for %.0f s; --dead if its machine is off",
		row.Number, row.Address, row.Ago, absent.Seconds())
}

// may returns why the directory is not to be used by its row, nil without one.
func (d Dead) may(have, own kept, row *postgres.Member, now float64, off bool) error {
	refuse := func(format string, args ...any) error { return Refusal(fmt.Sprintf(format, args...)) }
	system, old := have.Memory.Origin.System, have.old(row, now)
	switch {
	case have.Incarnation == 0:
		return refuse("it has joined no cluster: start a relay on it, and move its queue by 'mta queue export' and " +
			"'mta queue import'")
	case d.Number == 0 || d.Name == "":
		return refuse("no relay of this version of mta has used it, and it does not name its node: start a relay on " +
			"it with the certificate of that node, and 'mta cluster drain'")
	case system != 0 && own.Memory.Origin.System != 0 && system != own.Memory.Origin.System:
		return refuse("node %d has it from another cluster, whose database is another one", d.Number)
	case row == nil || have.Incarnation < row.Incarnation: // it was forgotten
		if old != "" && !off {
			return refuse("%s. What has left since it was made would leave twice. If you have no newer copy, add "+
				"--dead", old)
		}
		return nil
	case have.Incarnation > row.Incarnation:
		return refuse("the database has lost writes: it has incarnation %d of node %d, which has joined as %d",
			row.Incarnation, d.Number, have.Incarnation)
	case row.Ago < absent.Seconds() && !off:
		return Refusal(answers(row))
	case old != "":
		return refuse("%s. What has left since it was made would leave twice. If you have no newer copy, 'mta cluster "+
			"forget %d' first", old, d.Number)
	}
	return nil
}

// old is why a directory may be older than what its node has used last, "" if it is not. row is the newest of the node.
func (k kept) old(row *postgres.Member, now float64) string {
	forgotten := row != nil && row.Forgotten && row.Incarnation == k.Incarnation+1 // Seen is as the node left it
	switch {
	case row == nil || row.Incarnation != k.Incarnation && !forgotten:
		return fmt.Sprintf("it may be an old copy: node %d was forgotten, and the database no longer has when it "+
			"was last seen", k.Node)
	case k.Process < row.Process:
		return fmt.Sprintf("it is an old copy: node %d has run with another one since", k.Node)
	case k.Seen == 0:
		return "it may be an old copy: a version before this one of mta has used it last, which has not noted when"
	}
	if d := time.Duration((now - row.Ago - k.Seen) * float64(time.Second)); d > absent || row.Noted > k.noted() {
		return fmt.Sprintf("it is an old copy, or its disk could not be written: it was written last at %s, and node "+
			"%d was seen %s later", time.UnixMilli(int64(k.Seen*1000)).UTC().Format(time.DateTime), k.Node,
			d.Round(time.Second))
	}
	return ""
}

// Fence has a dead node take no part any more: a process with its directory is refused. It is an error while the node
// answers, unless its machine is known to be off.
func (m *Membership) Fence(ctx context.Context, d Dead, off bool) error {
	return m.cfg.writer.Fence(ctx, d.Number, d.incarnation, off)
}
