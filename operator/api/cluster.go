package api

import (
	"context"
	"path/filepath"
	"time"

	"example.org/mta/cluster/ca"
)

// Cluster is how the cluster and this relay's part in it are.
type Cluster struct {
	On     bool `json:"on"`             // the configuration has a cluster block
	Node   int  `json:"node,omitempty"` // the number of this relay
	Takes  bool `json:"takes_part"`     // it takes part
	Shards int  `json:"shards"`         // of 64: those for which it decides about limits
	// seconds since the database's last answer to this node; without a meaning while it takes no part
	Silent float64 `json:"database_silent"`
	// what happens to mail under shared limits when the database has been away for long: "wait" or "part"
	OnLoss string `json:"on_loss,omitempty"`
	// the part of each limit by which it goes on then is one in so many; 0: it waits
	Part    int64    `json:"part,omitempty"`
	Lost    string   `json:"lost_writes,omitempty"` // the writes that the database has lost; absent: none
	Waiting int      `json:"changes_waiting"`       // changes, of what all nodes know, that wait on this relay's disk
	Trouble []string `json:"trouble"`               // the reasons of the cluster's alarms
	// the queue of this relay moves to the others, or other nodes have not answered whether they have some of it
	Moving *Moving    `json:"moving,omitempty"`
	Copy   *QueueCopy `json:"copy,omitempty"` // of this relay's queue in the database; absent: there is none

	Members []ClusterMember `json:"members"` // as read last, by number
}

// QueueCopy is how far the copy of a queue in the database is.
type QueueCopy struct {
	Log     uint64  `json:"log"`     // its number
	Entry   uint64  `json:"entry"`   // the newest in the log
	Octets  int64   `json:"octets"`  // of the queue that are in the log
	Waiting int64   `json:"waiting"` // octets that are not there yet
	Lag     float64 `json:"lag"`     // seconds for which the oldest change has waited
}

// ClusterMember is a node of a cluster.
type ClusterMember struct {
	Node        int     `json:"node"`                // its number
	Address     string  `json:"address"`             // at which the others reach it
	Version     string  `json:"version"`             // of its program
	Incarnation uint64  `json:"incarnation"`         // raised when it is forgotten
	Seen        float64 `json:"seen"`                // seconds since it wrote to the database that it is there
	Forgotten   bool    `json:"forgotten,omitempty"` // its number is free
	// what it has otherwise than this relay: blocks of settings, or templates of a tenant; null: not known, as of
	// another version
	Differ []string `json:"settings_differ"`
}

// DrainedNode is the beginning or the end of a node's drain.
type DrainedNode struct {
	Effect
	Moving Moving `json:"moving"`
}

// Moving is how far a node's queue has moved to the others. Figures are since it began.
type Moving struct {
	Node       int       `json:"node"`           // that mail leaves
	On         bool      `json:"on"`             // the queue is to leave, until undrain or a restart
	Since      time.Time `json:"since,omitzero"` // when that began
	Messages   int       `json:"messages"`       // moved
	Recipients int       `json:"recipients"`     // of these
	Left       int64     `json:"left"`           // recipients in the queue
	Busy       int       `json:"busy"`           // of these: in delivery, or about to be reported
	// messages that are withheld, since the node that they were sent to has not answered whether it has them
	Waiting  int `json:"waiting"`
	Declined int `json:"declined"` // messages that a node does not take
	// nothing more could move when the queue was looked through last: what is left is delivered by this node
	Rests bool         `json:"rests"`
	To    []MovingNode `json:"to"` // the other nodes, by number
}

// MovingNode is a node that mail moves to.
type MovingNode struct {
	Node       int    `json:"node"`               // its number
	Messages   int    `json:"messages"`           // that it has taken
	Recipients int    `json:"recipients"`         // of these
	LeftOut    string `json:"left_out,omitempty"` // why it takes no mail now; absent: it does
}

// Adopt has a dead node's mail move to the living nodes: from its data directory, or from its copy in the database.
type Adopt struct {
	Dir  string `json:"dir,omitempty"`  // the directory, in full, as this node sees it
	Node int    `json:"node,omitempty"` // or the number of a node with `replicate`, whose copy is restored first
	Dead bool   `json:"dead,omitempty"` // the machine of that node is off, although the node may have just answered
	// go on although some of it can't move: damaged mail, events, or keys of requests; it stays and is named
	Accept bool `json:"accept,omitempty"`
	Intent
}

// Check implements api.Checked.
func (a *Adopt) Check() error {
	switch {
	case a.Node != 0 && a.Dir != "":
		return Invalid("give one of the two", "a node and a directory are given")
	case a.Node < 0 || a.Node > ca.LastNode:
		return Invalid("'mta cluster status' lists the nodes", "%d is not the number of a node", a.Node)
	case a.Node == 0 && !filepath.IsAbs(a.Dir):
		return Invalid("give it from / on", "%.200q is not a directory in full", a.Dir)
	}
	return nil
}

// Adopted is the beginning of that. Count is the recipients in the queue of the dead node.
type Adopted struct {
	Effect
	// with dry_run: the recipients by the state in which a start of that relay would find them
	States   map[string]int `json:"states,omitempty"`
	Adoption Adoption       `json:"adoption"`
}

// Adoption is how far the mail of a dead node has moved.
type Adoption struct {
	Dir     string    `json:"dir"`              // its data directory
	NodeID  string    `json:"nodeid"`           // of its relay
	Running bool      `json:"running"`          // it goes on; otherwise the directory is closed
	Ended   time.Time `json:"ended,omitzero"`   // when nothing was left; absent: something is
	Moving  Moving    `json:"moving"`           // its mail; left_out and rests are as of a drain
	Events  int64     `json:"events"`           // of its log that streams have yet to send, about
	Failed  string    `json:"failed,omitempty"` // why events are left, or no mail moves
	// what stays in the directory and why: damaged files, events, and the first 20 messages
	Stays   []string `json:"stays,omitempty"`
	Letters int      `json:"letters"` // of sendmail in its maildrop, which stay there
}

// Reset has the nodes begin anew in the database, after that has lost writes.
type Reset struct {
	// only give all other nodes the keys by which clients can repeat requests, of which the database may have lost some
	Keys bool `json:"keys,omitempty"`
	Intent
}

// WasReset is what came of that.
type WasReset struct {
	Effect
	Done bool `json:"done"` // false: the keys are on their way yet; ask again
	// with keys: which nodes have not got them, and why
	Without []MovingNode `json:"without,omitempty"`
}

// Clusters is what the server asks of the relay about its cluster.
type Clusters interface {
	Cluster(context.Context) (Cluster, error)
	// DrainNode has this node take no new mail, and its queue move to the others, until UndrainNode.
	DrainNode(context.Context, Intent) (DrainedNode, error)
	UndrainNode(context.Context, Intent) (DrainedNode, error)
	Moving(context.Context) (Moving, error)
	Reset(context.Context, Reset) (WasReset, error)
}

// Adopters is what the server asks of the relay about the mail of dead nodes.
type Adopters interface {
	// Adopt begins to move the mail of a dead node, or goes on with that.
	Adopt(context.Context, Adopt) (Adopted, error)
	// Adoption returns how far the latest one is.
	Adoption(context.Context) (Adoption, error)
}
