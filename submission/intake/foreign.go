package intake

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"

	"example.org/mta/internal/reply"
)

// ForeignFields are header fields of another mail server by which applications name what becomes of a message, such as
// X-Virtual-MTA. They are removed from the message, whoever sends them, and count from some clients only: those in
// From, and those who have logged in. "" is no field.
type ForeignFields struct {
	Pool     string // names the pool of sources
	Campaign string // names the campaign, where no X-MTA-Campaign does
	EnvID    string // the envelope's id, where MAIL had no ENVID
	From     []netip.Prefix
	// MayUsePool reports whether a tenant's mail may name a pool. Nil: it may name none.
	MayUsePool func(tenant, pool string) bool
}

// Where each of them is in foreignFields.
const (
	foreignPool = iota
	foreignCampaign
	foreignEnvID
)

// foreignFields is what a message has of them.
type foreignFields [3]ownField

// maxEnvID bounds an envelope's id, in octets (RFC 3461, 4.4).
const maxEnvID = 100

// take notes a field with its value. It returns nil when the field is none of them.
func (f *foreignFields) take(names *ForeignFields, name, value []byte) *ownField {
	if names == nil {
		return nil
	}
	for i, n := range [len(f)]string{names.Pool, names.Campaign, names.EnvID} {
		if n != "" && bytes.EqualFold(name, []byte(n)) {
			f[i].times++
			f[i].add(value)
			return &f[i]
		}
	}
	return nil
}

// takeForeign reads the message's foreign fields, where the client's count. Its tenant is known by now.
func (m *Message) takeForeign() {
	d, c, h := m.desk, m.client, &m.content.header
	names := &d.cfg.Foreign
	if m.refused != nil || h.foreign == (foreignFields{}) {
		return
	}
	if c.User == "" && !slices.ContainsFunc(names.From, func(p netip.Prefix) bool {
		return p.Contains(c.Peer.Addr())
	}) {
		for i := range h.foreign {
			if h.foreign[i].times > 0 {
				d.cfg.Ignored.Add(1)
			}
		}
		h.foreign = foreignFields{}
		return
	}
	may := func(pool string) bool { return names.MayUsePool != nil && names.MayUsePool(m.account.tenant, pool) }
	pool := &h.foreign[foreignPool]
	switch lower := strings.ToLower(pool.value); {
	case pool.times == 0:
	case pool.times > 1 || pool.value == "":
		m.reject(badPoolField.Refusal(names.Pool))
	case may(pool.value):
	case may(lower): // PowerMTA knows no case in the names of virtual MTAs, and their import makes lower case of them
		pool.value = lower
	default:
		m.reject(unknownPool.Refusal(names.Pool, reply.Printable(pool.value)))
	}
}

// envID is the value as an envelope's id: none where it can't be one.
func (o *ownField) envID() string {
	if len(o.value) > maxEnvID || strings.ContainsFunc(o.value, func(r rune) bool { return r < ' ' || r > '~' }) {
		return ""
	}
	return o.value
}
