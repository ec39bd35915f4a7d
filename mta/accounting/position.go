package accounting

import "example.org/mta/internal/linelog"

// Position is a place in the log.
type Position = linelog.Position

// ParsePosition reads what Position.String returns.
func ParsePosition(s string) (Position, error) { return linelog.ParsePosition(s) }

// EventID returns the event_id of the record at p in the log of a node.
func EventID(node string, p Position) string { return node + "-" + p.String() }

// ParseEventID reads the event_id of a record.
func ParseEventID(id string) (node string, p Position, err error) { return linelog.ParseEventID(id) }
