package envelope

import "encoding/binary"

// RequestKey names a request that is taken once, however often it is sent. Octets 0 to 3 stand for its tenant, 4 to 13
// are a sum of what the tenant calls it, and the last two are requestKeyMark. Keys of earlier versions, and those of
// imported messages, are sums altogether: the mark is in one of 65,536 of them. The zero RequestKey means none.
type RequestKey [16]byte

const requestKeyMark = 0x6b31

// NewRequestKey makes a key of the sums of a tenant and of a request.
func NewRequestKey(tenant [4]byte, request [10]byte) (k RequestKey) {
	copy(k[:4], tenant[:])
	copy(k[4:14], request[:])
	binary.BigEndian.PutUint16(k[14:], requestKeyMark)
	return k
}

// Tenant returns what stands for the tenant; false for a key that does not have that.
func (k RequestKey) Tenant() (tenant [4]byte, ok bool) {
	if binary.BigEndian.Uint16(k[14:]) != requestKeyMark {
		return tenant, false
	}
	return [4]byte(k[:4]), true
}

// Moved returns the name of the request at a relay to which its key was moved; of that, it returns the key itself. No
// relay gives it to a request that it takes.
func (k RequestKey) Moved() RequestKey {
	k[13] = ^k[13]
	return k
}
