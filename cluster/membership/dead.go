package membership

import (
	"context"
	"fmt"

	"example.org/mta/cluster/postgres"
)

// Dead is a node that has left a data directory behind.
type Dead struct {
	Number      uint16
	Name        string // the nodeid of its relay
	incarnation uint64
}

// Dead returns whose data directory one is by the file that package node keeps there. It is a Refusal while that node
// answers, unless its machine is known to be off; for a copy of the directory that is older than another one; and for
// the directory of another cluster.
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
	row := find(view, d.Number)
	if d.Number == m.number && row != nil && row.Incarnation == have.Incarnation {
		return d, Refusal("it is this relay's, or a copy of that")
	}
	return d, d.may(have, own, row, off)
}

// may returns why the directory is not to be used by its row, nil without one.
func (d Dead) may(have, own kept, row *postgres.Member, off bool) error {
	refuse := func(format string, args ...any) error { return Refusal(fmt.Sprintf(format, args...)) }
	system := have.Memory.Origin.System
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
		return nil
	case have.Incarnation > row.Incarnation:
		return refuse("the database has lost writes: it has incarnation %d of node %d, which has joined as %d",
			row.Incarnation, d.Number, have.Incarnation)
	case row.Ago < absent.Seconds() && !off:
		return refuse("node %d at %s answered %.0f s ago: stop it and wait for %.0f s; --dead if its machine is off",
			d.Number, row.Address, row.Ago, absent.Seconds())
	case have.Process < row.Process:
		return refuse("it is an old copy: node %d has run with another one since, and what has left there would leave "+
			"twice. If the other one is gone for good, 'mta cluster forget %d' first", d.Number, d.Number)
	}
	return nil
}

// Fence has a dead node take no part any more: a process with its directory is refused. It is an error while the node
// answers, unless its machine is known to be off.
func (m *Membership) Fence(ctx context.Context, d Dead, off bool) error {
	view, err := m.cfg.reader.View(ctx)
	if err != nil {
		return err
	}
	// A later incarnation may be that of another relay, which has the number now.
	if row := find(view, d.Number); row != nil && row.Incarnation == d.incarnation {
		_, err = m.cfg.writer.Forget(ctx, d.Number, off)
	}
	return err
}
