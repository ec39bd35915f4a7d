package listing

import (
	"cmp"

	"example.org/mta/operator/api"
)

type connection = api.Connection

// Connections lists the open connections, with clients and with remote hosts.
var Connections = Listing[connection]{
	Name:  "connections",
	Noun:  "connection",
	Empty: "those with clients and with remote hosts would stand here",
	Columns: []Column[connection]{
		{Title: "PEER", Shrink: true, In: Top, Cell: peer},
		{Title: "ID", In: CLI | Console, Cell: func(c *connection) Cell { return Word(c.ID) }},
		{Title: "DIR", Cell: func(c *connection) Cell { return Word(c.Direction) }},
		{Title: "STATE", Spare: 3, Cell: func(c *connection) Cell { return State(c.State) }},
		{Title: "PEER", In: CLI | Console, Cell: peer},
		{Title: "NAME", Shrink: true, Spare: 9, Cell: func(c *connection) Cell { return Word(c.PeerName) }},
		{Title: "FOR", Shrink: true, In: CLI, Cell: func(c *connection) Cell { return Word(whose(c)) }},
		{Title: "SITE OR LISTENER", Spare: 6, In: Top | Console, Cell: func(c *connection) Cell {
			return Word(cmp.Or(c.Site, c.Listener)).to(ToSite, c.Site)
		}},
		{Title: "SOURCE OR USER", Spare: 7, In: Top | Console, Cell: func(c *connection) Cell {
			return Word(cmp.Or(c.Source, c.User)).to(ToSource, c.Source)
		}},
		{Title: "TENANT", In: Console, Cell: func(c *connection) Cell { return Name(ToTenant, c.Tenant) }},
		{Title: "TLS", Spare: 5, Cell: func(c *connection) Cell { return secured(c.TLS) }},
		{Title: "AGE", Right: true, At: func(c *connection, l Look) Cell { return l.ago(c.Since) }},
		{Title: "IDLE", Right: true, Spare: 2, At: func(c *connection, l Look) Cell { return l.ago(c.IdleSince) }},
		{Title: "RUNNING", Right: true, In: CLI | Console,
			Cell: func(c *connection) Cell { return outgoing(c, c.Backlog) }},
		{Title: "WINDOW", Right: true, Spare: 8, Cell: func(c *connection) Cell { return outgoing(c, c.Window) }},
		{Title: "MESSAGES", Right: true, Spare: 1, Cell: func(c *connection) Cell { return Count(c.Messages) }},
		{Title: "MODE", In: Console, Cell: func(c *connection) Cell { return Word(c.Mode) }},
	},
	NoteTitle: "LAST REPLY",
	Note: func(c *connection, _ Look) string {
		if c.LastReply == nil {
			return ""
		}
		return c.LastReply.String()
	},
	Key: func(c *connection) string { return c.ID },
	Compare: func(_ string, a, b *connection) int { // ids are not in the order of another node's
		return cmp.Or(cmp.Compare(a.Direction, b.Direction), a.Since.Compare(b.Since))
	},
}

func peer(c *connection) Cell { return Word(c.Peer) }

// whose is the mail of a connection: what it is for in one cell.
func whose(c *connection) string {
	if c.Direction == api.Outgoing {
		return c.Site + From(c.Source)
	}
	return Join(c.Listener, c.Tenant, c.User)
}

func outgoing(c *connection, n int) Cell {
	if c.Direction != api.Outgoing {
		return Unknown()
	}
	return Count(n)
}
