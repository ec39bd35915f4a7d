package bench

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// client is one submission connection, opened when it is needed: the envelope in one flight
// (RFC 2920), the content in another.
type client struct {
	load *Load
	addr string
	conn net.Conn // nil: not connected
	in   *bufio.Reader
	out  []byte
	sent int // messages on this connection
	stop func() bool
}

// refusal is a reply that was not the wanted one.
type refusal struct{ line string }

func (r refusal) Error() string { return "the server says: " + r.line }

// errInDoubt is a connection that was lost between the end of the content and its reply.
var errInDoubt = errors.New("the connection was lost before the reply to the content")

// replyLimit is how long a reply may take.
const replyLimit = 2 * time.Minute

// send submits message n, and notes when its content ended and when it was accepted.
func (c *client) send(ctx context.Context, n int, to []string) error {
	if most := c.load.PerConnection; most > 0 && c.sent >= most {
		c.quit()
		c.close()
	}
	if c.conn == nil {
		if err := c.connect(ctx); err != nil {
			return err
		}
	}
	c.sent++
	_ = c.conn.SetDeadline(time.Now().Add(replyLimit))
	if err := c.envelope(to); err != nil {
		return err
	}
	c.out = appendHead(c.out[:0], n, to[0])
	flight := net.Buffers{c.out, []byte("\r\n"), c.load.body(n), []byte(".\r\n")}
	if _, err := flight.WriteTo(c.conn); err != nil {
		return err // without its dot the content is nothing (RFC 5321, 4.1.1.4)
	}
	c.load.Sent[n] = time.Since(c.load.Began)
	text, err := c.expect('2')
	if refused := (refusal{}); err != nil && !errors.As(err, &refused) {
		return fmt.Errorf("%w: %v", errInDoubt, err)
	}
	if err != nil {
		return err
	}
	c.load.Heard[n] = time.Since(c.load.Began)
	c.load.IDs[n] = text[strings.LastIndexByte(text, ' ')+1:] // "250 2.0.0 queued as ID", "250 2.0.0 Ok: queued as ID"
	return nil
}

// envelope sends all commands at once and wants all of them accepted.
func (c *client) envelope(to []string) error {
	b := append(c.out[:0], "MAIL FROM:<"...)
	b = append(b, c.load.Sender...)
	b = append(b, ">\r\n"...)
	for _, rcpt := range to {
		b = append(b, "RCPT TO:<"...)
		b = append(b, rcpt...)
		b = append(b, ">\r\n"...)
	}
	c.out = append(b, "DATA\r\n"...)
	if _, err := c.conn.Write(c.out); err != nil {
		return err
	}
	for range len(to) + 1 {
		if _, err := c.expect('2'); err != nil {
			return err
		}
	}
	_, err := c.expect('3')
	return err
}

func appendHead(b []byte, n int, to string) []byte {
	b = append(b, "Date: Sat, 21 Nov 2026 04:00:00 +0000\r\nFrom: sender@client.example\r\nTo: "...)
	b = append(b, to...)
	b = append(b, "\r\nMessage-ID: <"...)
	b = strconv.AppendInt(b, int64(n), 10)
	b = append(b, "@client.example>\r\nX-Mta-Test-Id: "...)
	b = strconv.AppendInt(b, int64(n), 10)
	b = append(b, "\r\nSubject: number "...)
	b = strconv.AppendInt(b, int64(n), 10)
	return append(b, "\r\n"...)
}

func (c *client) connect(ctx context.Context) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", c.addr)
	if err != nil {
		return err
	}
	c.conn, c.in, c.sent = conn, bufio.NewReader(conn), 0
	c.stop = context.AfterFunc(ctx, func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(replyLimit))
	if _, err := c.expect('2'); err != nil {
		return err
	}
	if err := c.command(hello); err != nil || c.load.secured == nil {
		return err
	}
	return c.secure(ctx)
}

const hello = "EHLO client.example\r\n"

// secure goes on by TLS.
func (c *client) secure(ctx context.Context) error {
	if err := c.command("STARTTLS\r\n"); err != nil {
		return err
	}
	secured := tls.Client(c.conn, c.load.secured)
	if err := secured.HandshakeContext(ctx); err != nil {
		return err
	}
	c.conn, c.in = secured, bufio.NewReader(secured)
	return c.command(hello)
}

func (c *client) command(line string) error {
	if _, err := c.conn.Write([]byte(line)); err != nil {
		return err
	}
	_, err := c.expect('2')
	return err
}

// expect reads one reply, gives its last line without CRLF, and wants its first digit.
func (c *client) expect(digit byte) (string, error) {
	for {
		line, err := c.in.ReadSlice('\n')
		switch {
		case err != nil:
			return "", err
		case len(line) < 6:
			return "", fmt.Errorf("the server says %q, which is not a reply", line)
		case line[3] == '-':
			continue
		}
		text := strings.TrimRight(string(line), "\r\n")
		if line[0] != digit {
			return "", refusal{text}
		}
		return text, nil
	}
}

func (c *client) quit() {
	if c.conn != nil {
		_ = c.command("QUIT\r\n") // the mail is safe whatever is said to it
	}
}

func (c *client) close() {
	if c.conn != nil {
		c.stop()
		c.conn.Close()
		c.conn = nil
	}
}
