package web

import (
	"example.org/mta/mta/accounting"
	"example.org/mta/operator/api"
)

// record is a record of the accounting log, as pages show it.
type record struct{ *accounting.Record }

// readRecord reads a line of the log.
func readRecord(line []byte) (record, error) {
	r, err := accounting.Parse(line)
	return record{r}, err
}

// Reply is the response, nil when the record has none.
func (r record) Reply() *api.Reply {
	p := &r.Response
	if p.Code == 0 && p.Text == "" {
		return nil
	}
	reply := &api.Reply{Code: p.Code, Text: p.Text, Command: p.Command, Local: p.Local}
	if p.Enhanced[0] != 0 {
		reply.Enhanced = p.Enhanced.String()
	}
	return reply
}
