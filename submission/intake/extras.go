package intake

import "time"

// Extras are what a client can ask for a message beside its envelope. SMTP has them in header fields, which are
// read as well: an extra that is set counts in place of its field.
type Extras struct {
	// Release is when the message is released, over the window Spread from then on. Either one set stands in
	// place of all X-Hold fields.
	Release  time.Time
	Spread   time.Duration
	Campaign string // in place of X-MTA-Campaign
	Priority *int   // in place of MT-Priority, -9 to 9 (RFC 6758); nil: not set
}

// Set gives the message its extras. It comes before the content.
func (m *Message) Set(x Extras) { m.extras = &x }

// campaign is the message's: as set, else as its header has it.
func (m *Message) campaign() string {
	if x := m.extras; x != nil && x.Campaign != "" {
		return x.Campaign
	}
	return m.content.header.campaign
}

// tier is how important the message is: as was asked, up to the ceiling.
func (m *Message) tier() uint8 {
	t, asked := m.content.header.tier()
	if x := m.extras; x != nil && x.Priority != nil {
		t, asked = tierOf(*x.Priority)
	}
	if asked {
		return max(t, m.account.ceiling)
	}
	return m.account.tier
}
