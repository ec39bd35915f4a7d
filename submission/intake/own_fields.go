package intake

import (
	"bytes"
	"strings"

	"example.org/mta/internal/envelope"
)

// tenantField names the tenant of a message. It counts from clients in Config.TenantFieldFrom only.
const tenantField = "X-MTA-Tenant"

// ownFields are the header fields that are addressed to this relay. They are removed from the message.
type ownFields [9]ownField

// Where each of them is in ownFields.
const (
	ownHoldFor = iota
	ownHoldUntil
	ownHoldSpread
	ownTenant
	ownKey
	ownCampaign
	ownExpires
	ownTimezone
	ownPace
)

var ownNames = [len(ownFields{})][]byte{[]byte(holdFor), []byte(holdUntil), []byte(holdSpread), []byte(tenantField),
	[]byte(keyField), []byte(campaignField), []byte(expiresField), []byte(envelope.TimezoneField),
	[]byte(envelope.PaceField)}

// maxOwnValue bounds how much is kept of a field's value, in octets; a longer one is malformed.
const maxOwnValue = 3 * maxMeta // the longest is metadata in base64

// ownField is what a message has of one of them.
type ownField struct {
	value string // of the first
	times int    // the message has it
}

// take notes a field with its value. It returns nil when the field is not addressed to this relay.
func (f *ownFields) take(name, value []byte) *ownField {
	for i, own := range ownNames {
		if bytes.EqualFold(name, own) {
			f[i].times++
			f[i].add(value)
			return &f[i]
		}
	}
	return nil
}

// add appends a part of the value: the rest of the field's first line, or a continuation line.
func (o *ownField) add(part []byte) {
	if o.times == 1 && len(o.value) <= maxOwnValue {
		o.value = strings.TrimSpace(o.value + " " + string(bytes.TrimSpace(part[:min(len(part), maxOwnValue)])))
	}
}
