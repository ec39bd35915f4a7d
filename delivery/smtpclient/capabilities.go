package smtpclient

import (
	"strconv"
	"strings"
)

// Capabilities is what a host said in answer to EHLO. The zero value is a host that knows HELO
// only.
type Capabilities struct {
	Extended     bool // it knows EHLO
	Pipelining   bool // RFC 2920
	Chunking     bool // RFC 3030
	BinaryMIME   bool // RFC 3030
	EightBitMIME bool // RFC 6152
	UTF8         bool // RFC 6531
	DSN          bool // RFC 3461
	StartTLS     bool // RFC 3207
	RequireTLS   bool // RFC 8689
	Size         bool // RFC 1870
	SizeLimit    int64
	DeliverBy    bool // RFC 2852
	MinBy        int64
	Priority     bool     // RFC 6710
	Auth         []string // mechanisms, upper case (RFC 4954)

	// Limits (RFC 9422); 0 is none given.
	MailMax       int // MAIL commands in a session
	RcptMax       int // RCPT commands in a transaction
	RcptDomainMax int // different recipient domains in a transaction
}

// mode is the best mode that the host offers.
func (c *Capabilities) mode() Mode {
	switch {
	case !c.Pipelining:
		return LockStep
	case !c.Chunking:
		return Pipelined
	}
	return Chunked
}

// parseCapabilities reads a positive reply to EHLO: the first line greets, each of the others is a
// keyword with parameters (RFC 5321, 4.1.1.1).
func parseCapabilities(r rawReply) Capabilities {
	c := Capabilities{Extended: true}
	_, lines, _ := strings.Cut(string(r.raw), "\n")
	for line := range strings.Lines(lines) {
		line = line[min(4, len(line)):]
		// "AUTH=LOGIN" is how some hosts spelt it before RFC 2554.
		if len(line) > 5 && strings.EqualFold(line[:5], "AUTH=") {
			line = line[:4] + " " + line[5:]
		}
		if f := strings.Fields(strings.ToUpper(line)); len(f) > 0 {
			c.add(f[0], f[1:])
		}
	}
	return c
}

func (c *Capabilities) add(keyword string, params []string) {
	switch keyword {
	case "PIPELINING":
		c.Pipelining = true
	case "CHUNKING":
		c.Chunking = true
	case "BINARYMIME":
		c.BinaryMIME = true
	case "8BITMIME":
		c.EightBitMIME = true
	case "SMTPUTF8":
		c.UTF8 = true
	case "DSN":
		c.DSN = true
	case "STARTTLS":
		c.StartTLS = true
	case "REQUIRETLS":
		c.RequireTLS = true
	case "SIZE":
		c.Size = true
		if len(params) > 0 {
			// 0, or nothing that can be read, is no fixed limit (RFC 1870, 3).
			if n, err := strconv.ParseInt(params[0], 10, 64); err == nil && n > 0 {
				c.SizeLimit = n
			}
		}
	case "DELIVERBY":
		c.DeliverBy = true
		if len(params) > 0 {
			c.MinBy, _ = strconv.ParseInt(params[0], 10, 64) // 0, for what can't be read, is no minimum
		}
	case "MT-PRIORITY":
		c.Priority = true
	case "AUTH":
		c.Auth = append(c.Auth, params...)
	case "LIMITS":
		c.addLimits(params)
	}
}

// addLimits reads "RCPTMAX=100" and the like; what is unknown or malformed is left out
// (RFC 9422, 3).
func (c *Capabilities) addLimits(params []string) {
	for _, p := range params {
		name, value, _ := strings.Cut(p, "=")
		n, err := strconv.Atoi(value)
		if err != nil || n <= 0 {
			continue
		}
		switch name {
		case "MAILMAX":
			c.MailMax = n
		case "RCPTMAX":
			c.RcptMax = n
		case "RCPTDOMAINMAX":
			c.RcptDomainMax = n
		}
	}
}
