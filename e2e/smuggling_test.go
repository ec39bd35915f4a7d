package e2e

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// lineEnds are what some host, somewhere, may take for a line end.
var lineEnds = []string{"\r\n", "\n", "\r", "\r\r\n", "\n\r", "\r\x00\n", "\x00\r\n", "\r\n\x00", "\x85", "\u2028", "\v", "\f"}

// TestNothingIsSmuggled sends messages in which a second one follows what some host may take for the end of the
// content, by DATA and by BDAT with a cut amid that, to a listener that refuses bare newlines and to one that makes line
// ends of them. The next hop is a Postfix that takes bare newlines for line ends, as all did until 2023, by BDAT
// and by DATA. It never has a second message.
func TestNothingIsSmuggled(t *testing.T) {
	parallel(t)
	for _, keywords := range []string{"", "chunking"} {
		t.Run("postfix without "+keywords, func(t *testing.T) { nothingIsSmuggled(t, keywords) })
	}
}

func nothingIsSmuggled(t *testing.T, discard string) {
	addr := func() string { return "127.0.0.1:" + commonPort(t, "127.0.0.1") }
	strict, lenient := addr(), addr()
	f := newFieldWith(t, "", fmt.Sprintf(`listener "strict" {
  address        = [%q]
  relay_from     = ["127.0.0.0/8"]
  normalise_from = []
}
listener "lenient" {
  address        = [%q]
  relay_from     = ["127.0.0.0/8"]
  normalise_from = ["127.0.0.0/8"]
}
`, strict, lenient), func(t *testing.T, addr, port string) *server {
		s, _ := postfixWith(t, addr, port, "smtpd_forbid_bare_newline = no\nsmtpd_forbid_unauth_pipelining = no\nsmtpd_discard_ehlo_keywords = "+discard+"\n")
		return s
	})
	sent, taken := 0, 0
	for _, listener := range []string{strict, lenient} {
		for _, before := range lineEnds {
			for _, after := range lineEnds {
				for _, way := range []string{"DATA", "BDAT", "chunks"} {
					if end := before + "." + after; way == "DATA" && strings.Contains(end, "\r\n.\r\n") {
						continue // the end of the content it is
					}
					id := fmt.Sprintf("cover-%d", sent)
					sent++
					if smuggle(t, listener, way, id, before+"."+after) {
						taken++
					}
				}
			}
		}
	}
	f.relay.drained(t, patience)
	s, seen := f.servers[0], map[string]int{}
	eventually(t, patience, func() error {
		clear(seen)
		for _, m := range s.messages(t) {
			seen[m.field("X-Mta-Test-Id")]++
		}
		if len(seen) < taken {
			return fmt.Errorf("%d of %d messages have arrived", len(seen), taken)
		}
		return nil
	})
	for id, n := range seen {
		if !strings.HasPrefix(id, "cover-") || n != 1 {
			t.Errorf("%d messages %q have arrived", n, id)
		}
	}
	t.Logf("%d messages sent, %d taken, %d arrived, none of them smuggled", sent, taken, len(seen))
	if taken == 0 || taken == sent {
		t.Errorf("%d of %d messages were taken", taken, sent)
	}
}

// smuggle sends a message with another one in it, behind what is not the end of the first. It reports whether the
// relay has taken the first; it must never have taken two.
func smuggle(t *testing.T, addr, way, id, end string) (taken bool) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	const inner = "MAIL FROM:<evil@client.example>\r\nRCPT TO:<victim@postfix.example>\r\nDATA\r\nX-Mta-Test-Id: smuggled\r\n\r\nx\r\n"
	content := "X-Mta-Test-Id: " + id + "\r\nSubject: cover\r\n\r\ntext" + end + inner
	in := bufio.NewReader(conn)
	reply := func() string {
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return ""
			}
			if len(line) > 3 && line[3] == ' ' {
				return line
			}
		}
	}
	reply()
	fmt.Fprint(conn, "EHLO client.example\r\n")
	reply()
	fmt.Fprint(conn, "MAIL FROM:<sender@client.example>\r\nRCPT TO:<user@postfix.example>\r\n")
	reply()
	reply()
	switch way {
	case "DATA":
		fmt.Fprint(conn, "DATA\r\n")
		reply()
		fmt.Fprint(conn, content+".\r\n")
	case "BDAT": // with a command behind, as pipelining allows
		fmt.Fprintf(conn, "BDAT %d LAST\r\n%sNOOP\r\n", len(content), content)
	case "chunks": // cut amid the false end
		cut := strings.Index(content, end) + len(end)/2
		fmt.Fprintf(conn, "BDAT %d\r\n%sBDAT %d LAST\r\n%s", cut, content[:cut], len(content)-cut, content[cut:])
		if !strings.HasPrefix(reply(), "250") {
			return false
		}
	}
	taken = strings.HasPrefix(reply(), "250 2.0.0")
	fmt.Fprint(conn, "QUIT\r\n")
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return taken
		}
		if strings.HasPrefix(line, "354") || strings.HasPrefix(line, "250 2.1") {
			t.Errorf("%s with %q: the relay took what was in the content for commands: %s", way, end, line)
		}
	}
}
