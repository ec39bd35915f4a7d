package accounting

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
)

// Parse reads one line of the log. What it doesn't know is left out, and so are ids and addresses that are not valid:
// damage to one hides no record.
func Parse(line []byte) (*Record, error) {
	r := new(Record)
	if err := json.Unmarshal(line, r, readings); err != nil {
		return nil, fmt.Errorf("reading an accounting record: %w", err)
	}
	// Records of older versions have version and cipher in tls_protocol_version, parted by a space, and the trust in
	// tls_cipher.
	if version, cipher, old := strings.Cut(r.TLS.Version, " "); old {
		r.TLS = TLS{Version: version, Cipher: cipher, Trust: r.TLS.Cipher}
	}
	return r, nil
}

// readings are how values are read whose form in the log is not that of their type.
var readings = json.JoinOptions(
	jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true),
	json.WithUnmarshalers(json.JoinUnmarshalers(
		json.UnmarshalFunc(readID), json.UnmarshalFunc(readSeconds), json.UnmarshalFunc(readAddr),
		json.UnmarshalFromFunc(readReply), json.UnmarshalFromFunc(readEnd),
	)),
)

// readID reads the id of a message, which is empty in records of none.
func readID(quoted []byte, id *envelope.ID) error {
	*id, _ = envelope.ParseID(unquoted(quoted))
	return nil
}

func readAddr(quoted []byte, a *netip.Addr) error {
	*a, _ = netip.ParseAddr(unquoted(quoted))
	return nil
}

// unquoted is a JSON string of characters that need no escapes.
func unquoted(s []byte) string { return strings.Trim(string(s), `"`) }

// readSeconds reads a duration in seconds, to the microsecond.
func readSeconds(text []byte, d *time.Duration) error {
	f, err := strconv.ParseFloat(string(text), 64)
	*d = time.Duration(math.Round(f*1e6)) * time.Microsecond
	return err
}

// readReply reads a response: its enhanced code has a name for each number.
func readReply(d *jsontext.Decoder, r *reply.Reply) error {
	var w struct {
		Code     int `json:"code"`
		Enhanced struct {
			Class   uint16 `json:"class"`
			Subject uint16 `json:"subject"`
			Detail  uint16 `json:"detail"`
		} `json:"enhanced_code"`
		Content string `json:"content"`
		Command string `json:"command"`
		Local   bool   `json:"local"`
	}
	err := json.UnmarshalDecode(d, &w)
	e := w.Enhanced
	*r = reply.Reply{
		Code: w.Code, Text: w.Content, Command: w.Command, Local: w.Local,
		Enhanced: reply.Enhanced{e.Class, e.Subject, e.Detail},
	}
	return err
}

// readEnd reads an end of a connection, as appendEnd writes it.
func readEnd(d *jsontext.Decoder, end *netip.AddrPort) error {
	var w struct {
		Address string `json:"address"`
	}
	if err := json.UnmarshalDecode(d, &w); err != nil {
		return err
	}
	if a, err := netip.ParseAddr(w.Address); err == nil {
		*end = netip.AddrPortFrom(a, 0)
	} else {
		*end, _ = netip.ParseAddrPort(w.Address)
	}
	return nil
}
