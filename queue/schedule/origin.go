package schedule

import "strings"

// Origin is where a message comes from.
type Origin struct {
	Tenant   string
	Campaign string
	Sender   string // the domain of the sender, "" for the null sender
	Folded   bool   // only the tenant is known
}

// Text is what an index has of an origin, beside the tenant. originOf is the inverse.
func (o *Origin) Text() string { return o.Campaign + "\x00" + o.Sender }

// OriginOf is the inverse of Text.
func OriginOf(tenant, text string) Origin {
	i := max(strings.LastIndexByte(text, 0), 0)
	return Origin{Tenant: tenant, Campaign: text[:i], Sender: text[min(i+1, len(text)):]}
}

// Clone gives a copy that keeps nothing else in memory.
func (o Origin) Clone() Origin {
	o.Tenant, o.Campaign, o.Sender = strings.Clone(o.Tenant), strings.Clone(o.Campaign), strings.Clone(o.Sender)
	return o
}
