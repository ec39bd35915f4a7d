package dispatch

import (
	"sync"

	"example.org/mta/bounce/returnpath"
	"example.org/mta/internal/envelope"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/suppression"
)

// tokenField is the header field that names the message and, where it is for one recipient, that one. It comes
// back in complaints and in bounces that return the message.
const tokenField = "X-MTA-Token"

// returnPath is where reports about a message go.
type returnPath struct {
	config.ReturnPath
	message     *envelope.Message
	unsubscribe bool                    // by mail, where the message has no List-Unsubscribe
	position    func(recipient int) int // see positions
	make        func(returnpath.Purpose, *envelope.Message, int) string
}

// returnPath gives the return path of a message by a configuration, nil for its sender.
func (d *Dispatcher) returnPath(pol *wiring.Policy, m *envelope.Message) *returnPath {
	set := pol.Config.ReturnPathFor(m.Tenant, m.Sender)
	if d.Token == nil || !set.On() {
		return nil
	}
	t := pol.Config.Tenant(m.Tenant)
	return &returnPath{ReturnPath: set, message: m, unsubscribe: t != nil && t.UnsubscribeMail,
		position: positions(m), make: d.Token}
}

// positions gives each recipient's number among the different addresses of a message. A message can have an address
// twice, and its records do not show which one they are about.
func positions(m *envelope.Message) func(recipient int) int {
	all := sync.OnceValue(func() []int {
		first, out := make(map[envelope.Address]int, len(m.Recipients)), make([]int, len(m.Recipients))
		for i := range m.Recipients {
			n, known := first[m.Recipients[i].Address]
			if !known {
				n = len(first)
				first[m.Recipients[i].Address] = n
			}
			out[i] = n
		}
		return out
	})
	return func(recipient int) int {
		if recipient <= 0 { // the first, or none
			return recipient
		}
		return all()[recipient]
	}
}

func (p *returnPath) token(purpose returnpath.Purpose, recipient int) string {
	return p.make(purpose, p.message, p.position(recipient))
}

// perJob is how many of n recipients a job has.
func (p *returnPath) perJob(n int) int {
	if p != nil && p.PerRecipient {
		return 1
	}
	return n
}

// top is the fields that a message gets as it leaves, besides its signature.
type top struct {
	recipient   int    // that they name, counted from 1; 0: none, and they are the same for all
	fields      []byte // with CRLF
	unsubscribe []byte // List-Unsubscribe, for a message that has none
}

// put sets the return path of the transactions of a job, and gives the fields that its message gets. Those name a
// recipient only if that is the message's only one, or each has a separate transaction: so one signature is
// good for all jobs of a message. MAIL names the recipient of each transaction that has only one.
func (p *returnPath) put(recipients []int) (address func(only int) envelope.Address, _ top) {
	if p == nil {
		return nil, top{}
	}
	named := returnpath.NoRecipient
	if p.PerRecipient || len(p.message.Recipients) == 1 {
		named = recipients[0]
	}
	token := p.token(returnpath.Bounce, named)
	return func(only int) envelope.Address {
		if only != named {
			return p.address(returnpath.Bounce, p.token(returnpath.Bounce, only))
		}
		return p.address(returnpath.Bounce, token)
	}, top{recipient: named + 1, fields: p.fields(token), unsubscribe: p.unsubscribeField(named)}
}

func (p *returnPath) address(purpose returnpath.Purpose, token string) envelope.Address {
	return envelope.Address(string(purpose) + token + "@" + p.Domain)
}

// fields are the token by itself, and as RFC 9477 has it (3.1 and 3.3).
func (p *returnPath) fields(token string) []byte {
	b := make([]byte, 0, 3*(returnpath.Length+32)+len(p.Domain))
	b = append(append(append(b, tokenField+": "...), token...), "\r\nCFBL-Address: "...)
	b = append(append(b, p.address(returnpath.Bounce, token)...), "; report=arf\r\nCFBL-Feedback-ID: "...)
	return append(append(b, token...), "\r\n"...)
}

// unsubscribeField is List-Unsubscribe with a mail address; none where that was not asked for, or could not say who
// unsubscribes. Mail to a postmaster is never suppressed.
func (p *returnPath) unsubscribeField(named int) []byte {
	if !p.unsubscribe || named < 0 || suppression.Exempt(p.message.Recipients[named].Address) {
		return nil
	}
	a := p.address(returnpath.Unsubscribe, p.token(returnpath.Unsubscribe, named))
	return []byte("List-Unsubscribe: <mailto:" + string(a) + ">\r\n")
}
