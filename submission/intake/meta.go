package intake

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"strings"
	"unicode"
	"unicode/utf8"

	"example.org/mta/internal/reply"
)

// campaignField names the campaign of a message.
const campaignField = "X-MTA-Campaign"

// metaField has one item of the sender's data, as name=value. There may be several. They come back in each record of
// the message, as the metadata of requests by HTTP does.
const metaField = "X-MTA-Meta"

// maxMeta bounds the names and values of all items, in octets.
const maxMeta = 1 << 10

// maxCampaign bounds a campaign's name, in octets.
const maxCampaign = 128

// metaFields are the fields of a message with items of metadata.
type metaFields struct {
	items  []ownField
	octets int // of the fields' names and values, more or less; beyond the bound, what follows is dropped
}

// take notes a field. What it gives back takes the field's continuation lines.
func (f *metaFields) take(value []byte) *ownField {
	if f.octets += len(value); f.octets > 4*maxMeta { // encoded words are longer than what they mean
		return &ownField{times: 2}
	}
	f.items = append(f.items, ownField{times: 1})
	o := &f.items[len(f.items)-1]
	o.add(value)
	return o
}

// object gives the items as a JSON object, "" without any.
func (f *metaFields) object() (string, *reply.Reply) {
	if len(f.items) == 0 && f.octets == 0 {
		return "", nil
	}
	left := maxMeta
	names := make(map[string]bool, len(f.items))
	out := make([]byte, 0, 2*f.octets)
	for i := range f.items {
		name, value, err := f.items[i].item()
		switch left -= len(name) + len(value); {
		case err != nil:
			return "", badMeta.Refusal(err)
		case names[name]:
			return "", badMeta.Refusal(fmt.Sprintf("%s is given twice", reply.Printable(name)))
		case left < 0:
			return "", metaTooLong()
		}
		names[name] = true
		out = append(appendText(append(out, ','), name), ':')
		out = appendText(out, value)
	}
	if f.octets > 4*maxMeta {
		return "", metaTooLong()
	}
	out[0] = '{'
	return string(append(out, '}')), nil
}

func metaTooLong() *reply.Reply {
	return badMeta.Refusal(fmt.Sprintf("names and values of all fields have more than %d octets", maxMeta))
}

// item takes a field's value apart.
func (o *ownField) item() (name, value string, _ error) {
	text, err := o.text()
	if err != nil {
		return "", "", err
	}
	name, value, ok := strings.Cut(text, "=")
	if name, value = strings.TrimSpace(name), strings.TrimSpace(value); !ok || name == "" {
		return "", "", errors.New("write it as name=value")
	}
	return name, value, nil
}

// text is the field's value as readers see it: mail libraries encode what isn't ASCII (RFC 2047).
func (o *ownField) text() (string, error) {
	text, err := new(mime.WordDecoder).DecodeHeader(o.value)
	if err != nil {
		return "", errors.New("its encoded words must be in UTF-8")
	}
	if !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		return "", errors.New("it must be printable UTF-8")
	}
	return text, nil
}

// campaign is the value as a campaign's name: none where it has no printable UTF-8 of a bounded length.
func (o *ownField) campaign() string {
	if text, err := o.text(); err == nil && len(text) <= maxCampaign {
		return text
	}
	return ""
}

// appendText adds a text as JSON.
func appendText(out []byte, text string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(text) // of a text: never fails
	return append(out, bytes.TrimRight(b.Bytes(), "\n")...)
}
