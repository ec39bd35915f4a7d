package report

// This file splits a message into its parts, whatever is wrong with it. The MIME of bounces is often
// broken: multiparts are not closed, boundaries differ from those that were declared, fields have no colon,
// a mailbox's "From " line comes first. Split takes all of it and never fails; its work and memory are
// bounded by the limits below.
//
// It does not look into messages within the message: their parts are the caller's to ask for.

import (
	"bytes"
	"slices"
)

// Limits. What exceeds them is not split further, or not read.
const (
	MaxSize   = 256 << 10 // of a message, in octets
	MaxDepth  = 8         // of multiparts within multiparts
	MaxParts  = 100
	MaxFields = 500 // of one header
)

// Part is the message, or a part of it: those that have parts come before them.
type Part struct {
	Header
	// Type is the media type in lower case, "text/plain" when there is none or it can't be read.
	Type string
	// Body is the body as it stands, with its transfer encoding. Of a multipart it is the text before
	// the first part, which those write who take MIME for decoration.
	Body []byte
}

// Multipart reports whether p has parts.
func (p *Part) Multipart() bool { return isMultipart(p.Type) }

func isMultipart(mediaType string) bool { return len(mediaType) > 10 && mediaType[:10] == "multipart/" }

// Split returns the message and all of its parts, in the order in which they stand. The first is the message.
func Split(content []byte) []Part {
	s := splitter{content: plain(content[:min(len(content), MaxSize)])}
	s.part(afterEnvelope(s.content))
	for s.at < len(s.content) {
		s.line()
	}
	s.end(len(s.content))
	return s.parts
}

// splitter goes through a message once, line by line.
type splitter struct {
	content []byte
	at      int
	parts   []Part
	open    []boundary // of the multiparts that we are in
	current int        // the part whose body we are in; -1 after the end of a multipart
	begin   int        // where that body begins
}

// boundary is a multipart's, with its two dashes.
type boundary []byte

// line reads a line of a body.
func (s *splitter) line() {
	start := s.at
	line := nextLine(s.content[start:])
	s.at += len(line)
	if len(s.open) == 0 {
		s.at = len(s.content)
		return
	}
	if len(line) < 3 || line[0] != '-' || line[1] != '-' || len(s.parts) >= MaxParts {
		return
	}
	line = bytes.TrimRight(line, " \t\r\n")
	for i := len(s.open) - 1; i >= 0; i-- {
		rest, found := bytes.CutPrefix(line, s.open[i])
		switch {
		case !found:
			continue
		case len(rest) == 0:
			s.end(start)
			s.open = s.open[:i+1] // those within were not closed
			s.part(s.at)
		case string(rest) == "--":
			s.end(start)
			s.open = s.open[:i]
			s.current = -1
		default:
			continue
		}
		return
	}
}

// part begins the part whose header is at at.
func (s *splitter) part(at int) {
	header, length := readHeader(s.content[at:])
	p := Part{Header: header, Type: mediaType(header.Get("Content-Type"))}
	s.current, s.begin = len(s.parts), at+length
	s.at = s.begin
	if p.Multipart() {
		if b := s.boundaryOf(&p); b != nil && len(s.open) < MaxDepth {
			s.open = append(s.open, b)
		} else {
			p.Type = "text/plain" // MIME by name only
		}
	}
	s.parts = append(s.parts, p)
}

// end ends the current body before the boundary, or the end of the message, at at.
func (s *splitter) end(at int) {
	if s.current < 0 {
		return
	}
	body := s.content[s.begin:max(at, s.begin)]
	if at < len(s.content) { // the line break is the boundary's (RFC 2046, 5.1.1)
		body = bytes.TrimSuffix(bytes.TrimSuffix(body, []byte("\n")), []byte("\r"))
	}
	s.parts[s.current].Body = body
}

// boundaryOf returns the boundary of a multipart whose body begins at s.begin: the declared one if it occurs,
// or else the first line that looks like one. It is nil when there is none.
func (s *splitter) boundaryOf(p *Part) boundary {
	body := s.content[s.begin:]
	if declared := p.Param("Content-Type", "boundary"); declared != "" {
		if b := append([]byte("--"), declared...); bytes.Contains(body, b) {
			return b
		}
	}
	for len(body) > 0 {
		line := nextLine(body)
		body = body[len(line):]
		line = bytes.TrimRight(line, " \t\r\n")
		if len(line) > 2 && len(line) <= 100 && line[0] == '-' && line[1] == '-' && hasFold(body, "content-") &&
			!s.isOpen(line) {
			return line
		}
	}
	return nil
}

func (s *splitter) isOpen(line []byte) bool {
	return slices.ContainsFunc(s.open, func(b boundary) bool { return bytes.Equal(b, line) })
}

// nextLine returns the first line of b with its end, all of b when there is none.
func nextLine(b []byte) []byte {
	if i := bytes.IndexByte(b, '\n'); i >= 0 {
		return b[:i+1]
	}
	return b
}

// hasFold reports whether b begins with prefix, which is in lower case.
func hasFold(b []byte, prefix string) bool {
	return len(b) >= len(prefix) && bytes.EqualFold(b[:len(prefix)], []byte(prefix))
}

// afterEnvelope returns the offset of the header, which empty lines and the "From " line of a mailbox can precede.
func afterEnvelope(content []byte) int {
	at := 0
	for at < len(content) {
		line := nextLine(content[at:])
		if len(bytes.TrimSpace(line)) > 0 && !bytes.HasPrefix(line, []byte("From ")) &&
			!bytes.HasPrefix(line, []byte(">From ")) {
			return at
		}
		at += len(line)
	}
	return at
}
