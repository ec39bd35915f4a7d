package accounting

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"mta/internal/envelope"
	"mta/internal/reply"
)

// wire is a record as it stands in the log.
type wire struct {
	Type      Type   `json:"type"`
	ID        string `json:"id"`
	Sender    string `json:"sender"`
	Recipient string `json:"recipient"`
	Queue     string `json:"queue"`
	Site      string `json:"site"`
	Size      int64  `json:"size"`
	Response  struct {
		Code     int `json:"code"`
		Enhanced struct {
			Class   uint16 `json:"class"`
			Subject uint16 `json:"subject"`
			Detail  uint16 `json:"detail"`
		} `json:"enhanced_code"`
		Content string `json:"content"`
		Command string `json:"command"`
		Local   bool   `json:"local"`
	} `json:"response"`
	Peer struct {
		Name string `json:"name"`
		Addr string `json:"addr"`
	} `json:"peer_address"`
	Time              time.Time `json:"event_time"`
	Created           time.Time `json:"created_time"`
	Release           time.Time `json:"scheduled_time"`
	Attempts          int       `json:"num_attempts"`
	Provider          string    `json:"provider_name"`
	EgressPool        string    `json:"egress_pool"`
	EgressSource      string    `json:"egress_source"`
	Tenant            string    `json:"tenant"`
	Campaign          string    `json:"campaign"`
	Session           string    `json:"session_id"`
	ReceptionProtocol string    `json:"reception_protocol"`
	DeliveryProtocol  string    `json:"delivery_protocol"`
	TLSVersion        string    `json:"tls_protocol_version"`
	TLSCipher         string    `json:"tls_cipher"`
	Count             int64     `json:"count"`
}

// Parse reads one line of the log. What it doesn't know is left out.
func Parse(line []byte) (*Record, error) {
	var w wire
	if err := json.Unmarshal(line, &w); err != nil {
		return nil, fmt.Errorf("reading an accounting record: %w", err)
	}
	r := &Record{
		Type: w.Type, Sender: envelope.Address(w.Sender), Recipient: envelope.Address(w.Recipient),
		Queue: w.Queue, Site: w.Site, Provider: w.Provider, Size: w.Size,
		Response: reply.Reply{
			Code: w.Response.Code, Text: w.Response.Content, Command: w.Response.Command, Local: w.Response.Local,
			Enhanced: reply.Enhanced{w.Response.Enhanced.Class, w.Response.Enhanced.Subject, w.Response.Enhanced.Detail},
		},
		Peer: Peer{Name: w.Peer.Name}, Time: w.Time, Created: w.Created, Release: w.Release, Attempts: w.Attempts,
		EgressPool: w.EgressPool, EgressSource: w.EgressSource,
		Tenant: w.Tenant, Campaign: w.Campaign, Session: w.Session,
		ReceptionProtocol: w.ReceptionProtocol, DeliveryProtocol: w.DeliveryProtocol,
		TLS: strings.TrimSpace(w.TLSVersion + " " + w.TLSCipher), Count: w.Count,
	}
	var err error
	if w.ID != "" {
		if r.ID, err = envelope.ParseID(w.ID); err != nil {
			return nil, fmt.Errorf("reading an accounting record: %w", err)
		}
	}
	if w.Peer.Addr != "" {
		if r.Peer.Addr, err = netip.ParseAddr(w.Peer.Addr); err != nil {
			return nil, fmt.Errorf("reading an accounting record: %w", err)
		}
	}
	return r, nil
}
