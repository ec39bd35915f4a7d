package accounting

import (
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
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
	Class string `json:"bounce_classification"`
	Peer  struct {
		Name string `json:"name"`
		Addr string `json:"addr"`
	} `json:"peer_address"`
	Time              time.Time       `json:"event_time"`
	Created           time.Time       `json:"created_time"`
	Release           time.Time       `json:"scheduled_time"`
	Attempts          int             `json:"num_attempts"`
	Provider          string          `json:"provider_name"`
	EgressPool        string          `json:"egress_pool"`
	EgressSource      string          `json:"egress_source"`
	User              string          `json:"user"`
	Tenant            string          `json:"tenant"`
	Campaign          string          `json:"campaign"`
	Key               string          `json:"key"`
	Tags              []string        `json:"tags"`
	Meta              json.RawMessage `json:"meta"`
	TraceID           string          `json:"trace_id"`
	Headers           json.RawMessage `json:"headers"`
	Report            json.RawMessage `json:"feedback_report"`
	MatchedBy         string          `json:"matched_by"`
	Session           string          `json:"session_id"`
	ReceptionProtocol string          `json:"reception_protocol"`
	DeliveryProtocol  string          `json:"delivery_protocol"`
	TLSVersion        string          `json:"tls_protocol_version"`
	TLSCipher         string          `json:"tls_cipher"`
	TLSTrust          string          `json:"tls_trust"`
	TLSVerifiedBy     string          `json:"tls_verified_by"`
	TLSCertificate    string          `json:"tls_certificate"`
	Local             struct {
		Address string `json:"address"`
	} `json:"source_address"`
	Queued seconds `json:"queue_time"`
	Phases struct {
		Wait      seconds `json:"wait"`
		Connect   seconds `json:"connect"`
		Handshake seconds `json:"handshake"`
		Turn      seconds `json:"turn"`
		Send      seconds `json:"send"`
		Reply     seconds `json:"reply"`
	} `json:"attempt_time"`
	Count int64  `json:"count"`
	Event string `json:"event"`
	Stage int    `json:"stage"`
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
		Class: w.Class, Peer: Peer{Name: w.Peer.Name}, Time: w.Time, Created: w.Created, Release: w.Release, Attempts: w.Attempts,
		EgressPool: w.EgressPool, EgressSource: w.EgressSource,
		User: w.User, Tenant: w.Tenant, Campaign: w.Campaign, Key: w.Key, Tags: w.Tags, Meta: string(w.Meta), TraceID: w.TraceID,
		Headers: string(w.Headers), Report: string(w.Report), MatchedBy: w.MatchedBy, Session: w.Session,
		ReceptionProtocol: w.ReceptionProtocol, DeliveryProtocol: w.DeliveryProtocol,
		TLS: w.tls(), Count: w.Count, Event: w.Event, Stage: w.Stage, Queued: w.Queued.duration(),
		Phases: Phases{
			Wait: w.Phases.Wait.duration(), Connect: w.Phases.Connect.duration(), Handshake: w.Phases.Handshake.duration(),
			Turn: w.Phases.Turn.duration(), Send: w.Phases.Send.duration(), Reply: w.Phases.Reply.duration(),
		},
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
	if w.Local.Address != "" {
		if r.Local, err = parseEnd(w.Local.Address); err != nil {
			return nil, fmt.Errorf("reading an accounting record: %w", err)
		}
	}
	return r, nil
}

// seconds is a duration as it stands in the log.
type seconds float64

func (s seconds) duration() time.Duration {
	return time.Duration(math.Round(float64(s)*1e6)) * time.Microsecond
}

// tls gives the protection of the connection. Records of older versions have version and cipher in
// tls_protocol_version, parted by a space, and the trust in tls_cipher.
func (w *wire) tls() TLS {
	if version, cipher, old := strings.Cut(w.TLSVersion, " "); old {
		return TLS{Version: version, Cipher: cipher, Trust: w.TLSCipher}
	}
	return TLS{Version: w.TLSVersion, Cipher: w.TLSCipher, Trust: w.TLSTrust, By: w.TLSVerifiedBy, Certificate: w.TLSCertificate}
}

// parseEnd reads what appendEnd writes.
func parseEnd(s string) (netip.AddrPort, error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.AddrPortFrom(a, 0), nil
	}
	return netip.ParseAddrPort(s)
}
