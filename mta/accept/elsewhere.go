package accept

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"example.org/mta/bounce/inbox"
	"example.org/mta/bounce/returnpath"
	"example.org/mta/internal/fair"
	"example.org/mta/internal/faultlog"
	"example.org/mta/internal/network"
)

// Nodes are the nodes of a cluster.
type Nodes interface {
	Self() int
	// Others are the numbers of the other members; false while they are not known.
	Others() ([]int, bool)
	// Away is for how long another member had not written its row when the database was read last.
	Away(node int) time.Duration
	// Ask has another node answer a request, by its Elsewhere. The whole answer is in memory, and bounded.
	Ask(ctx context.Context, node int, r *http.Request) (*http.Response, error)
}

// Elsewhere has the nodes of a cluster take reports about mail that they have sent, and that came to another one. It is
// safe for concurrent use.
type Elsewhere struct {
	inbox *inbox.Inbox
	node  returnpath.Node // that this node's tokens have
	nodes Nodes
	now   func() time.Time
	fails *faultlog.Kind

	mu    sync.Mutex // guards what follows
	met   map[int]met
	turns map[int]*fair.Turns // by node that is asked
	// refused counts reports by the node whose silence had them refused.
	refused map[int]int64
}

// met is which tokens a node has made.
type met struct {
	node returnpath.Node
	at   time.Time // when it has answered so
}

const (
	// settling is how long a report that was handed over may take. The other node waits less: brought again meanwhile,
	// the report waits for the first one. searching is how long it waits for all nodes, and for its turns.
	settling, searching = 10 * time.Second, 20 * time.Second
	// metFor is for how long a node that did not make a token isn't asked about others of that maker, unless the id of
	// the message names it: another relay can have got its number.
	metFor = time.Minute
	// gone is when a node that is away is waited for no longer, unless it is known to make such tokens: reports about
	// mail of nobody must not come again for ever. Hosts keep a bounce for days.
	gone = 12 * time.Hour
	// atOnce bounds the reports that are handed to a node at a time, as Ask does. A neighbourhood of clients has one of
	// them: a stranger who brings many must not keep out those of others.
	atOnce = 4
	// maxHanded bounds a report, in octets: JSON writes three of its content as four.
	maxHanded = 1 << 20
)

// taken is the answer of a node.
type taken struct {
	Node    returnpath.Node // that its tokens have
	Outcome inbox.Outcome   // "": it has no records of the message
}

// NewElsewhere joins an inbox to those of other nodes. node is what the tokens of this one have.
func NewElsewhere(node returnpath.Node, now func() time.Time, log *slog.Logger) *Elsewhere {
	return &Elsewhere{node: node, now: now, met: make(map[int]met), turns: make(map[int]*fair.Turns),
		refused: make(map[int]int64),
		fails: faultlog.New(log, now, slog.LevelWarn,
			"reports about mail of other nodes are refused with 4xx, and come again",
			"reports about mail of other nodes are no longer refused")}
}

// Join has reports taken by an inbox, and handed to nodes. It is called before the others.
func (e *Elsewhere) Join(b *inbox.Inbox, nodes Nodes) { e.inbox, e.nodes = b, nodes }

// Hand has the node that has records of a message take a report about it, and returns what became of it; "" when all
// nodes have answered that they have none, or the one that has made the token has. While one does not answer that could
// have them it is an error: nothing is lost then, since who brought the report brings it again.
func (e *Elsewhere) Hand(ctx context.Context, h *inbox.Handed) (inbox.Outcome, error) {
	outcome, err := e.hand(ctx, h)
	switch {
	case err == nil:
		e.fails.Well()
	case !errors.Is(ctx.Err(), context.Canceled): // else the client has gone
		e.fails.Failed("", "message", h.Token.Message.String(), "error", err)
	}
	return outcome, err
}

func (e *Elsewhere) hand(ctx context.Context, h *inbox.Handed) (inbox.Outcome, error) {
	others, known := e.nodes.Others()
	home := h.Token.Message.Node()
	switch {
	case h.Token.Node == e.node && home == e.nodes.Self(): // its records are no longer kept
		return "", nil
	case !known:
		return "", errors.New("the nodes of the cluster are not known yet, since its database has not been read")
	}
	ctx, cancel := context.WithTimeout(ctx, searching)
	defer cancel()
	body, err := json.Marshal(h)
	if err != nil {
		return "", err
	}
	var (
		silent []int
		errs   error
		none   bool
	)
	for _, node := range e.likely(others, home, h.Token.Node) {
		answer, err := e.ask(ctx, node, h.Mail.Peer.Addr(), body)
		switch {
		case err != nil && e.could(node, h.Token.Node):
			silent, errs = append(silent, node), errors.Join(errs, fmt.Errorf("node %d: %w", node, err))
		case err != nil:
		case answer.Outcome != "", answer.Node == h.Token.Node && node == home:
			return answer.Outcome, nil
		case answer.Node == h.Token.Node:
			none = true // it has no records of mail of before it joined
		}
	}
	if none {
		return "", nil
	}
	e.mu.Lock()
	for _, node := range silent {
		e.refused[node]++
	}
	e.mu.Unlock()
	return "", errs
}

// Refused returns how many reports were refused since the start by the number of the node that did not answer. A nil
// Elsewhere has none.
func (e *Elsewhere) Refused() map[string]int64 {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make(map[string]int64, len(e.refused))
	for node, n := range e.refused {
		out[strconv.Itoa(node)] = n
	}
	return out
}

// could reports whether a node that does not answer may have made a token.
func (e *Elsewhere) could(node int, maker returnpath.Node) bool {
	e.mu.Lock()
	m, asked := e.met[node]
	e.mu.Unlock()
	return asked && m.node == maker || e.nodes.Away(node) < gone
}

// likely are the nodes that can have made a token, the likeliest first: the one with whose number the message's id
// ends, which is any number in ids of before a node joined, and those that have made such tokens. Another node has made
// one of this node's name at most if the id has its number.
func (e *Elsewhere) likely(others []int, home int, maker returnpath.Node) []int {
	e.mu.Lock()
	defer e.mu.Unlock()
	rank := func(node int) int {
		switch m, asked := e.met[node]; {
		case node == home:
			return 0
		case maker == e.node:
			return 3
		case asked && m.node == maker:
			return 1
		case !asked || e.now().Sub(m.at) >= metFor:
			return 2
		}
		return 3
	}
	all := slices.DeleteFunc(slices.Clone(others), func(n int) bool { return rank(n) == 3 })
	slices.SortStableFunc(all, func(a, b int) int { return rank(a) - rank(b) })
	return all
}

// begin waits for a client's turn to have a node asked.
func (e *Elsewhere) begin(ctx context.Context, node int, client netip.Addr) (*fair.Turn, error) {
	e.mu.Lock()
	turns := e.turns[node]
	if turns == nil {
		turns = fair.New(atOnce, e.now)
		e.turns[node] = turns
	}
	e.mu.Unlock()
	turn, err := turns.Begin(ctx, network.Around(client).String())
	if err != nil {
		return nil, fmt.Errorf("not asked, since other reports wait for it: %w", err)
	}
	return turn, nil
}

// ask has a node take a report that a client has brought.
func (e *Elsewhere) ask(ctx context.Context, node int, client netip.Addr, body []byte) (t taken, err error) {
	turn, err := e.begin(ctx, node, client)
	if err != nil {
		return t, err
	}
	defer turn.End()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://node/", bytes.NewReader(body))
	if err != nil {
		return t, err
	}
	answer, err := e.nodes.Ask(ctx, node, r)
	if err != nil {
		return t, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	switch {
	case err != nil:
		return t, err
	case answer.StatusCode != http.StatusOK:
		return t, fmt.Errorf("status %d: %s", answer.StatusCode, bytes.TrimSpace(text))
	}
	if err := json.Unmarshal(text, &t); err != nil {
		return t, fmt.Errorf("its answer can't be read: %w", err)
	}
	e.mu.Lock()
	e.met[node] = met{t.Node, e.now()}
	e.mu.Unlock()
	return t, nil
}

// ServeHTTP takes a report that another node hands over. It goes on when that has gone: what is half written down would
// be written again.
func (e *Elsewhere) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var h inbox.Handed
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxHanded)).Decode(&h); err != nil {
		http.Error(w, "the report can't be read", http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), settling)
	defer cancel()
	outcome, err := e.inbox.TakeHanded(ctx, &h)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(taken{e.node, outcome})
}
