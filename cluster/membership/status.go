package membership

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"example.org/mta/cluster/node"
	"example.org/mta/cluster/owner"
	"example.org/mta/cluster/postgres"
	"example.org/mta/cluster/share"
	"example.org/mta/internal/settings"
)

// early is how long before its end a certificate is an alarm.
const early = 30 * 24 * time.Hour

// deaf is for how long another node may leave asks without an answer: its answers wait for the database, too.
const deaf = 15 * time.Second

// Status is what operators see.
type Status struct {
	Number  uint16
	Members []postgres.Member // as read last, by number, with Ago as it is now
	Takes   bool              // this relay takes part
	Shards  []int             // for which this node decides
	Silent  time.Duration     // since the database's last answer to the node
	Failing bool              // the node's last call to it has failed
	OnLoss  string            // what happens after a loss of the database: "wait" or "part"
	Reserve int64             // the part of each limit that goes on then is one in so many; 0: none
	From    time.Duration     // until then, if the database does not answer meanwhile
	Lost    error             // the writes that the database has lost
	Waiting int               // changes of this relay, of what all nodes know, that wait for the database
	// what members have otherwise than this relay, by their numbers; one is missing if that is not known
	Differ map[uint16][]string
}

// Status returns how the cluster and this relay's part in it are.
func (m *Membership) Status() (s Status) {
	if m == nil {
		return s
	}
	n, waiting := m.Node(), m.cfg.Changes.Waiting()
	m.mu.Lock()
	now, failed := m.cfg.clock(), m.failed
	s = Status{Number: m.number, Members: slices.Clone(m.view.Members), Silent: now - m.since, Waiting: waiting,
		OnLoss: m.onLoss(), Differ: make(map[uint16][]string)}
	for i := range s.Members {
		row := &s.Members[i]
		row.Ago += (now - m.read).Seconds()
		if names, known := m.differs(row); known {
			s.Differ[row.Number] = names
		}
	}
	m.mu.Unlock()
	if n != nil {
		s.Takes, s.Shards, s.Silent, s.Lost = true, n.Owned(), min(s.Silent, n.Silent()), n.Lost()
		s.Reserve, s.From = n.Reserve()
		s.Failing = n.Failing() != nil
	} else if errors.As(failed, new(lost)) {
		s.Lost = failed
	}
	return s
}

// lasting is for how long nodes may have different settings, such as a limit: a reload of all takes so long.
const lasting = time.Minute

// differing is what is wrong with the settings of nodes; "": nothing.
func differing(all []share.Difference) string {
	if len(all) == 0 {
		return ""
	}
	var words []string
	for _, d := range all {
		words = append(words, d.String())
	}
	return fmt.Sprintf("the nodes have different settings, and the smallest limit counts: %s. Give all nodes the same "+
		"blocks, and reload: 'mta config reload'", some(words, "; "))
}

// some are the first of some words, for an alarm.
func some(words []string, between string) string {
	const most = 3
	if more := len(words) - most; more > 0 {
		words = append(slices.Clone(words[:most]), fmt.Sprintf("and %d more", more))
	}
	return strings.Join(words, between)
}

// Describe has the nodes compare what this relay has in force with theirs, by sums: see settings.Sums. Shared
// ones are asked for every few seconds.
func (m *Membership) Describe(sums, shared func() map[string]string) {
	if m == nil {
		return
	}
	fixed := sums()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fixed, m.shared = fixed, shared
}

func (m *Membership) described() map[string]string {
	m.mu.Lock()
	fixed, shared := m.fixed, m.shared
	m.mu.Unlock()
	if shared == nil {
		return nil
	}
	all := maps.Clone(fixed)
	maps.Copy(all, shared())
	return all
}

// differs names the settings of a member that are not as this relay's. They are not known of a member that has another
// version, which may have other defaults. m.mu is held.
func (m *Membership) differs(row *postgres.Member) (names []string, known bool) {
	if row.Forgotten || row.Version != m.cfg.Version {
		return nil, false
	}
	return settings.Differing(m.sums, row.Sums)
}

// compare notes which members have other settings. m.mu is held.
func (m *Membership) compare() {
	was := m.apart
	m.apart = make(map[uint16]time.Duration)
	for i := range m.view.Members {
		row := &m.view.Members[i]
		if names, _ := m.differs(row); len(names) == 0 || row.Ago > absent.Seconds() {
			continue
		}
		since, before := was[row.Number]
		if !before {
			since = m.cfg.clock()
		}
		m.apart[row.Number] = since
	}
}

// settingsDiffer is what members have otherwise than this relay; "": nothing, or not for long.
func (m *Membership) settingsDiffer() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var words []string
	for i := range m.view.Members {
		row := &m.view.Members[i]
		since, apart := m.apart[row.Number]
		if names, _ := m.differs(row); apart && len(names) > 0 && m.cfg.clock()-since >= lasting {
			words = append(words, fmt.Sprintf("node %d (%s)", row.Number, some(names, ", ")))
		}
	}
	if len(words) == 0 {
		return ""
	}
	return fmt.Sprintf("the settings of other nodes differ from this relay's: %s. Give all nodes the same, and "+
		"reload: 'mta config reload'; 'mta cluster status --json' names all that differ", some(words, "; "))
}

// absent is for how long a member has not written its row when it counts as away. It writes it every look.
const absent = 20 * time.Second

// Ousted returns why mail of this relay must not be delivered any more: its node was forgotten, so that another one may
// have adopted it. It is nil as long as the database has not shown that.
func (m *Membership) Ousted() error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ousted
}

// Own reports whether a number is this relay's.
func (m *Membership) Own(number uint16) bool { return number == m.number }

// Away is why a member counts as away, "" if it does not: it has not been seen for 20 s, as far as this relay can read.
func (m *Membership) Away(number uint16) string {
	row := m.member(number)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch read := m.cfg.clock() - m.read; {
	case row.Ago > absent.Seconds():
		return "it has not been seen lately"
	case read > absent: // not less: after a failover rows are as old as what it has lost, until the next reading
		return fmt.Sprintf("this node has not been able to read the cluster's database for %v", read.Round(time.Second))
	}
	return ""
}

// ago is how long before the newest reading a member was seen.
func (m *Membership) ago(row *postgres.Member) time.Duration {
	return time.Duration(row.Ago * float64(time.Second))
}

// orphaned is why mail waits for limits of shards that have an owner no more; "" without any.
func (m *Membership) orphaned(all []owner.Silence) string {
	if len(all) == 0 {
		return ""
	}
	left, first := time.Duration(0), all[0].Head
	for _, s := range all {
		left = max(left, s.Left+10*time.Second) // nodes take some at a time
	}
	why, row := "", m.member(first.Node)
	switch {
	case first.Incarnation == 0:
		why = "after 'mta cluster reset' nobody has any"
	case first.Incarnation < row.Incarnation:
		why = fmt.Sprintf("node %d was forgotten, and what it had granted has not ended", first.Node)
	default:
		why = fmt.Sprintf("node %d at %s, which decides about them, does not reach the database, and has not stopped "+
			"in order", first.Node, row.Address)
	}
	return fmt.Sprintf("the limits of %d of %d shards have nobody who decides: %s. Other nodes take them within %s; "+
		"mail that needs a larger part of these limits waits until then", len(all), owner.Shards, why,
		left.Round(time.Second))
}

// troubles are all that a relay has which takes part: one must not hide another.
func (m *Membership) troubles(n *node.Node, rows error, namesake string) string {
	var all []string
	add := func(some ...string) { // the first that there is
		if text := cmp.Or(some...); text != "" {
			all = append(all, text)
		}
	}
	if rows != nil {
		add(fmt.Sprintf("what somebody has edited in the cluster's database is left out: %v. Correct the row, or "+
			"delete it; that of a member its relay writes anew", rows))
	}
	orphans, deafness, differences, reserve := "", "", "", ""
	if n != nil {
		orphans, differences, reserve = m.orphaned(n.Orphans()), differing(n.Differences(lasting)), m.noReserve()
		if other, d := n.Unanswered(); d > deaf {
			deafness = fmt.Sprintf("node %d at %s, which decides about limits, has not answered for %s what this "+
				"relay has asked it: mail will wait for its parts of these. Check that this relay reaches its port, "+
				"and the logs and certificates of both", other, m.member(other).Address, d.Round(time.Second))
		}
	}
	add(orphans, deafness, m.missing()) // of one cause, often
	add(m.cfg.Changes.Trouble())
	add(namesake, differences, m.settingsDiffer(), reserve)
	return strings.Join(all, "; ")
}

// missing names members that have not been seen for long, and did not stop in order; "" for none. A node that stops
// leaves its row without a boot.
func (m *Membership) missing() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var words []string
	for i := range m.view.Members {
		row := &m.view.Members[i]
		if !row.Forgotten && row.Number != m.number && row.Boot != 0 && m.ago(row) > lasting &&
			m.cfg.clock()-m.steady > absent { // or they, too, have just got the database back
			words = append(words, fmt.Sprintf("node %d at %s for %s", row.Number, row.Address,
				m.ago(row).Round(time.Second)))
		}
	}
	if len(words) == 0 {
		return ""
	}
	return fmt.Sprintf("nodes that did not stop in order have not been seen: %s. Start their relays; if one is gone "+
		"for good, 'mta cluster adopt' its mail, or 'mta cluster forget' it", some(words, "; "))
}

// Mixed returns which members have another version of the program, "" for none.
func (m *Membership) Mixed() string {
	if m == nil {
		return ""
	}
	return m.mixed(m.number)
}

// mixed is Mixed, one member apart.
func (m *Membership) mixed(but uint16) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.view.Members) == 0 {
		return "the versions of the cluster's nodes are not known, since its database has not been read yet"
	}
	var words []string
	for _, row := range m.view.Members {
		if !row.Forgotten && row.Number != m.number && row.Number != but && row.Version != m.cfg.Version {
			words = append(words, fmt.Sprintf("node %d has mta %s", row.Number, row.Version))
		}
	}
	return strings.Join(words, ", ")
}

// afterLoss is what happens while the database does not answer.
func (s *Status) afterLoss() string {
	ends, waits := "this relay's share of the shared limits has run out", ": mail under them waits"
	if left := Term.Holds() - s.Silent; left > 0 {
		ends = fmt.Sprintf("this relay's share of the shared limits runs out in %s", left.Round(time.Second))
		waits = "; then mail under them waits"
	}
	switch {
	case s.Reserve == 0:
		return ends + waits
	case s.From > 0:
		return fmt.Sprintf("%s; in %s mail under them goes on, by 1/%d of each", ends, s.From.Round(time.Second),
			s.Reserve)
	}
	return fmt.Sprintf("this relay sends by 1/%d of each shared limit", s.Reserve)
}

// noReserve is why this node would wait after a loss of the database, against its settings; "": it would not.
func (m *Membership) noReserve() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.cfg.Part || m.cfg.clock()-m.since < lasting {
		return ""
	}
	const waits = "on_loss = \"part\" has no effect here, and mail would wait after a loss of the database: "
	if m.view.Version < postgres.Reserves {
		return waits + "run 'mta cluster init' of this version"
	}
	for _, row := range m.view.Members {
		if !row.Forgotten && row.OnLoss == "" {
			return fmt.Sprintf("%snode %d has mta %s, which does not know it: upgrade that node, or forget it", waits,
				row.Number, row.Version)
		}
	}
	return ""
}

// unknown is how many members there may be while the database has not been read, or has no row of any.
const unknown = 10

// Count is how many members there are, at least 1.
func (m *Membership) Count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.count()
}

func (m *Membership) count() (n int) {
	for _, row := range m.view.Members {
		if !row.Forgotten {
			n++
		}
	}
	return cmp.Or(n, unknown)
}

// Trouble returns why this relay takes no part, what is wrong with the database and with its standby, and that the
// certificate ends within 30 days; "" for each that is well.
func (m *Membership) Trouble() (part, database, standby, certificate string) {
	if m == nil {
		return
	}
	s := m.Status()
	m.mu.Lock()
	failed, standbys, namesake, rows := m.failed, m.view.Standbys, m.namesake(m.view), m.view.Fault
	unwritten := m.unwritten()
	m.mu.Unlock()
	switch {
	case ends(failed):
		part = failed.Error()
	case s.Lost != nil:
		part = fmt.Sprintf("node %d takes no part: %v. When the database is the right one: 'mta cluster reset'",
			m.number, s.Lost)
	case !s.Takes && failed != nil:
		database = fmt.Sprintf("this relay can't join the cluster yet: %v", failed)
	case s.Takes && (s.Failing || s.Silent > owner.Patience):
		database = fmt.Sprintf("the cluster's database has not acknowledged anything for %s: %s",
			s.Silent.Round(time.Second), s.afterLoss())
		if err := cmp.Or(failed, m.Node().Failing()); err != nil {
			database += fmt.Sprintf(" (%v)", err)
		}
	case unwritten > 0:
		database = fmt.Sprintf("for %s this node could not read and write its row in mta_cluster.members, and after "+
			"%s it is gone to the others: %v", unwritten.Round(time.Second), absent, failed)
	}
	n := m.Node()
	if n != nil {
		rows = cmp.Or(rows, n.LeftOut())
	}
	if part+database == "" {
		part = m.troubles(n, rows, namesake)
	}
	missing := standbys.Missing() // as read each five seconds, also while calls have no result
	if n != nil && n.Standby() != nil {
		missing = n.Standby().Error()
	}
	if missing != "" && !m.cfg.Database.Replicated && len(s.Members) > 0 {
		standby = "the cluster's database has no synchronous standby: " + missing
	}
	if own, err := m.certificate(); err == nil {
		if end := own.Leaf.NotAfter; end.Sub(m.cfg.Now()) < early {
			certificate = fmt.Sprintf("%s ends on %s, and then no other node talks to this one: 'mta cluster ca renew'",
				m.cfg.Pair.Certificate, end.UTC().Format(time.DateOnly))
		}
	}
	return part, database, standby, certificate
}
