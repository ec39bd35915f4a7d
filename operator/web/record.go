package web

import (
	"encoding/json"
	"fmt"
	"time"

	"example.org/mta/operator/api"
)

// record is what pages show of a record of the accounting log.
type record struct {
	Type      string
	ID        string
	Sender    string
	Recipient string
	Site      string
	Size      int64
	Response  struct {
		Code     int
		Enhanced *struct{ Class, Subject, Detail int } `json:"enhanced_code"`
		Content  string
		Command  string
		Local    bool
	}
	Peer struct {
		Name, Addr string
	} `json:"peer_address"`
	Attempts  int       `json:"num_attempts"`
	Class     string    `json:"bounce_classification"`
	Source    string    `json:"egress_source"`
	Session   string    `json:"session_id"`
	Tenant    string    `json:"tenant"`
	Campaign  string    `json:"campaign"`
	Provider  string    `json:"provider_name"`
	Protocol  string    `json:"delivery_protocol"`
	TLS       string    `json:"tls_protocol_version"`
	Trust     string    `json:"tls_trust"`
	QueueTime float64   `json:"queue_time"` // seconds
	Count     int       `json:"count"`
	Time      time.Time `json:"event_time"`
	EventID   string    `json:"event_id"`
}

// readRecord reads a line of the log.
func readRecord(line []byte) (record, error) {
	var r record
	if err := json.Unmarshal(line, &r); err != nil {
		return r, fmt.Errorf("reading a record of the log: %w", err)
	}
	return r, nil
}

// Reply is the response, nil when the record has none.
func (r *record) Reply() *api.Reply {
	p := r.Response
	if p.Code == 0 && p.Content == "" {
		return nil
	}
	reply := &api.Reply{Code: p.Code, Text: p.Content, Command: p.Command, Local: p.Local}
	if e := p.Enhanced; e != nil && e.Class != 0 {
		reply.Enhanced = fmt.Sprintf("%d.%d.%d", e.Class, e.Subject, e.Detail)
	}
	return reply
}

// Waited is the time from the message's acceptance to the record, 0 where the record has none.
func (r *record) Waited() time.Duration { return time.Duration(r.QueueTime * float64(time.Second)) }
