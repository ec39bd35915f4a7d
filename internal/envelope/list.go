package envelope

import (
	"io"
	"mime"
	"net/mail"
)

// listParser takes display names in any character set, since nobody reads them here: net/mail by itself
// refuses the whole field for a name in ISO-2022-JP.
var listParser = mail.AddressParser{WordDecoder: &mime.WordDecoder{
	CharsetReader: func(_ string, in io.Reader) (io.Reader, error) { return in, nil },
}}

// ParseList reads the addresses of a header field like From (RFC 5322, 3.4), as they are written there.
func ParseList(value string) (addresses []string, err error) {
	list, err := listParser.ParseList(value)
	for _, a := range list {
		addresses = append(addresses, a.Address)
	}
	return addresses, err
}
