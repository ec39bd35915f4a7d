package postfix

import (
	"bytes"
	"fmt"
	"io"
	"os"
)

// Limits of what is read.
const (
	maxConfig  = 4 << 20  // octets of main.cf or master.cf
	maxTable   = 64 << 20 // octets of a table
	maxEntries = 200_000  // of all tables together
)

// line is a logical line: continuations are joined to it.
type line struct {
	text   string
	number int // of its first line, from 1
}

// logicalLines splits a file as Postfix does: a line that begins with white space continues the one before, and empty
// lines and comments count for nothing, not even as the end of a logical line.
func logicalLines(data []byte) (lines []line) {
	number := 0
	var text []byte // of the last of them
	end := func() {
		if len(lines) > 0 {
			lines[len(lines)-1].text = string(text)
		}
	}
	for raw := range bytes.Lines(data) {
		number++
		raw = bytes.TrimRight(raw, " \t\r\n")
		trimmed := bytes.TrimLeft(raw, " \t")
		switch {
		case len(trimmed) == 0 || trimmed[0] == '#':
		case len(trimmed) < len(raw) && len(lines) > 0:
			text = append(append(text, ' '), trimmed...)
		default:
			end()
			text = append(text[:0], trimmed...)
			lines = append(lines, line{number: number})
		}
	}
	end()
	return lines
}

// readFile reads a file of limited size.
func readFile(path string, limit int64) ([]byte, error) {
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		// opening a FIFO would wait for its writer
		return nil, fmt.Errorf("%s is not a file: write the table's text into one", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s is larger than %d MiB: import a part of it", path, limit>>20)
	}
	return data, err
}
