package mta

import (
	"strings"

	"example.org/mta/delivery"
	"example.org/mta/queue"
)

// Mail that delivery has no room for waits in the queue in a line for each flow: who gets room must not
// be handed mail of another source, tenant or tier, for which there is none.

// flowMark ends the source in the name of a line. No source can have it in its name.
const flowMark = "\x01"

// lineOf names the line of the queue in which mail of a flow waits.
func lineOf(f delivery.Flow) string {
	return queue.Line(f.Site, f.Source+flowMark+string('0'+rune(f.Tier))+f.Tenant)
}

// sourceOfLine is the source from which the mail in a line is to leave; "" when that is not decided.
func sourceOfLine(line string) string {
	source, _, _ := strings.Cut(line, flowMark)
	return source
}
