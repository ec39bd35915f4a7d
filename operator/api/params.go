package api

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/operator/audit"
)

// Param is a parameter of a request: a field of its type with these tags.
//
//	q:"name"             its name in a query, and with it as a flag of commands and in a form
//	help:"..."           its meaning; a word in angle brackets stands for the value
//	default:"..."        the value when it is absent, other than the zero value
//	min:"1" max:"1000"   the bounds of a number; without them it is not negative
//	whole:"1s"           the unit of a time, if clients don't send what is finer
//	words:"one,another"  the values that it takes, if its type has no entry in wordsOf
//	arg:"NAME"           commands take it as arguments
//	short:"n"            the one letter of its flag
//	flag:"with-log"      its flag, if not q with hyphens
//	label:"..."          its name in a form, if other than q
//	hint:"..."           an example in a form
//	options:"One,Two"    its words in a form, if other than words
//
// The fields of an embedded struct count as the request's. The tag without of an embedded struct lists fields that
// don't.
type Param struct {
	Name, Help, Default string
	Words               []string
	Tag                 reflect.StructTag
	value               reflect.Value
}

// Params returns the parameters of a request, which is a pointer to a struct.
func Params(request any) []Param {
	return appendParams(nil, reflect.ValueOf(request).Elem(), nil)
}

func appendParams(all []Param, v reflect.Value, without []string) []Param {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, ok := f.Tag.Lookup("q")
		switch {
		case f.Anonymous && f.Type.Kind() == reflect.Struct:
			all = appendParams(all, v.Field(i), append(slices.Clip(without), strings.Fields(f.Tag.Get("without"))...))
		case ok && !slices.Contains(without, name):
			words := wordsOf[f.Type]
			if own := f.Tag.Get("words"); own != "" {
				words = strings.Split(own, ",")
			}
			all = append(all, Param{name, f.Tag.Get("help"), f.Tag.Get("default"), words, f.Tag, v.Field(i)})
		}
	}
	return all
}

// wordsOf has the types that take one of a few words.
var wordsOf = map[reflect.Type][]string{
	reflect.TypeFor[State]():             texts(States),
	reflect.TypeFor[Action]():            texts(Actions),
	reflect.TypeFor[Reason]():            parking.Reasons(),
	reflect.TypeFor[Order]():             texts(Orders),
	reflect.TypeFor[SummaryBy]():         texts(SummaryBys),
	reflect.TypeFor[SiteOrder]():         texts(SiteOrders),
	reflect.TypeFor[LogBy]():             texts(LogBys),
	reflect.TypeFor[HostState]():         texts(HostStates),
	reflect.TypeFor[Direction]():         texts(Directions),
	reflect.TypeFor[ConnectionState]():   texts(ConnectionStates),
	reflect.TypeFor[SuppressionSource](): texts(SuppressionSources),
	reflect.TypeFor[RuleAction]():        texts(RuleActions),
	reflect.TypeFor[Subject]():           texts(Subjects),
	reflect.TypeFor[Span]():              texts(Spans),
	reflect.TypeFor[ConfigFormat]():      texts(ConfigFormats),
	reflect.TypeFor[audit.Outcome]():     texts(audit.Outcomes),
}

func texts[T ~string](words []T) (all []string) {
	for _, w := range words {
		all = append(all, string(w))
	}
	return all
}

func join[T ~string](words []T) string { return strings.Join(texts(words), ", ") }

// Flag is the name of the parameter's flag.
func (p Param) Flag() string { return cmp.Or(p.Tag.Get("flag"), strings.ReplaceAll(p.Name, "_", "-")) }

// Field is the pointer to the parameter's field.
func (p Param) Field() any { return p.value.Addr().Interface() }

// IsFlag reports whether the parameter is true or false.
func (p Param) IsFlag() bool { return p.value.Kind() == reflect.Bool }

// IsList reports whether it has several values, with commas between them.
func (p Param) IsList() bool { return p.value.Kind() == reflect.Slice }

// unit is that of a time, which is sent without what is finer; 0: it is sent as it is.
func (p Param) unit() time.Duration {
	unit, _ := time.ParseDuration(p.Tag.Get("whole"))
	return unit
}

// bounds are those of a number.
func (p Param) bounds() (least, most int) {
	least, _ = strconv.Atoi(p.Tag.Get("min"))
	if most, _ = strconv.Atoi(p.Tag.Get("max")); most == 0 {
		most = math.MaxInt32
	}
	return least, most
}

// Set reads the value of a parameter. A list grows by it.
func (p Param) Set(text string) (err error) {
	if len(p.Words) > 0 && !slices.Contains(p.Words, text) {
		return fmt.Errorf("want %s, not %q", join(p.Words), text)
	}
	switch field := p.Field().(type) {
	case *bool:
		if *field = text == "true"; !*field && text != "false" {
			err = fmt.Errorf("want true or false, not %q", text)
		}
	case *int:
		least, most := p.bounds()
		if *field, err = strconv.Atoi(text); err != nil || *field < least || *field > most {
			err = fmt.Errorf("want a number from %d to %d, not %q", least, most, text)
		}
	case *Age:
		*field, err = ParseAge(text)
	case **Age:
		*field = new(Age)
		**field, err = ParseAge(text)
	case *time.Time:
		if *field, err = time.Parse(time.RFC3339Nano, text); err != nil {
			err = fmt.Errorf("want a time as 2026-01-02T15:04:05Z, not %q", text)
		}
	case *netip.Prefix:
		*field, err = ParseNetwork(text)
	case *[]string:
		*field = append(*field, strings.Split(text, ",")...)
	case **string:
		*field = &text
	default:
		p.value.SetString(text)
	}
	return err
}

// Text writes the value of a parameter, for Set. It returns false if the request is the same without it.
func (p Param) Text() (text string, set bool) {
	if field, ok := p.Field().(**string); ok {
		if *field != nil {
			text = **field
		}
		return text, *field != nil
	}
	least, _ := p.bounds()
	if p.value.IsZero() && (p.value.Kind() != reflect.Int || p.Default == "" || least > 0) {
		return "", false
	}
	switch field := p.Field().(type) {
	case **Age:
		text = (*field).String()
	case *time.Time:
		text = field.Truncate(p.unit()).Format(time.RFC3339Nano)
	case *[]string:
		text = strings.Join(*field, ",")
	default:
		text = fmt.Sprint(p.value.Interface())
	}
	return text, text != p.Default
}

// decode reads the parameters of a query. It refuses those that the request doesn't have: a filter that is misspelt and
// then ignored would fit everything.
func decode(query url.Values, params []Param) error {
	byName := make(map[string]Param, len(params))
	names := make([]string, len(params))
	for i, p := range params {
		names[i], byName[p.Name] = p.Name, p
	}
	for name, values := range query {
		p, ok := byName[name]
		switch {
		case !ok:
			return Invalid("known are "+strings.Join(names, ", "), "unknown parameter %q", name)
		case len(values) > 1 && !p.IsList():
			return Invalid("", "parameter %q stands twice", name)
		}
	}
	for _, p := range params {
		values := slices.Clone(query[p.Name])
		if _, optional := p.Field().(**string); !optional {
			values = slices.DeleteFunc(values, func(v string) bool { return v == "" })
		}
		if len(values) == 0 && p.Default != "" {
			values = []string{p.Default}
		}
		for _, value := range values {
			if err := p.Set(value); err != nil {
				return Invalid("", "%s: %v", p.Name, err)
			}
		}
	}
	return nil
}

// encode is the inverse of decode, for the client.
func encode(params []Param) url.Values {
	query := url.Values{}
	for _, p := range params {
		if text, set := p.Text(); set {
			query.Set(p.Name, text)
		}
	}
	return query
}

// ParseNetwork reads "192.0.2.0/24", or an address, which is a network of one.
func ParseNetwork(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return p, fmt.Errorf("want an address or a network as 192.0.2.0/24, not %q", s)
	}
	return p.Masked(), nil
}

// Paging asks for a page of a listing.
type Paging struct {
	After string `q:"after" help:"continue after the previous page (<cursor>)"`
	Limit int    `q:"limit" default:"50" min:"1" max:"1000" help:"the most of a page"`
}

// At asks for the page of at most limit rows behind a cursor.
func (p *Paging) At(after string, limit int) { p.After, p.Limit = after, limit }

// RowsOf returns the rows of a page, which is the field of their type, and the cursor of the next one; without a field
// for the cursor the page is all.
func RowsOf[T, L any](page *L) (rows *[]T, next *string) {
	v := reflect.ValueOf(page).Elem()
	next = new(string)
	for i := range v.NumField() {
		switch field := v.Field(i).Addr().Interface().(type) {
		case *[]T:
			rows = field
		case *string:
			next = field
		}
	}
	return rows, next
}

// Check returns an error if f can't be meant.
func (f *Filter) Check() error {
	for _, id := range f.IDs {
		if _, err := envelope.ParseID(id); err != nil {
			return Invalid("", "%v", err)
		}
	}
	if f.State != "" && !slices.Contains(States, f.State) {
		return Invalid("", "state: want %s, not %q", join(States), f.State)
	}
	if f.WaitsFor != "" && !slices.Contains(parking.Reasons(), string(f.WaitsFor)) {
		return Invalid("", "waits_for: want %s, not %q", strings.Join(parking.Reasons(), ", "), f.WaitsFor)
	}
	if f.Older != 0 && f.Newer != 0 && f.Older >= f.Newer {
		return Invalid("", "nothing is older than %v and newer than %v", f.Older, f.Newer)
	}
	return nil
}

// Age is a duration in the units of an operator: written as "90s", "15m", "1h30m", "2d", "1w".
type Age time.Duration

var ageUnits = []struct {
	name string
	unit time.Duration
}{{"w", 7 * 24 * time.Hour}, {"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}}

// maxAge is the longest age.
const maxAge = 15000 * 7 * 24 * time.Hour

// ParseAge reads the written form.
func ParseAge(s string) (Age, error) {
	bad := fmt.Errorf("%q is not an age: write it as 90s, 15m, 2h30m, 3d or 1w", s)
	total := time.Duration(0)
	for rest := s; rest != "" || s == ""; {
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		n, err := strconv.ParseInt(rest[:digits], 10, 32)
		if err != nil || digits == len(rest) {
			return 0, bad
		}
		unit := unitOf(rest[digits : digits+1])
		if unit == 0 {
			return 0, bad
		}
		if time.Duration(n) > (maxAge-total)/unit {
			return 0, fmt.Errorf("%q is too long: at most %s", s, Age(maxAge))
		}
		total += time.Duration(n) * unit
		rest = rest[digits+1:]
	}
	return Age(total), nil
}

func unitOf(name string) time.Duration {
	for _, u := range ageUnits {
		if u.name == name {
			return u.unit
		}
	}
	return 0
}

// String gives the written form in full, to the second: "1d2h", "45s", "0s".
func (a Age) String() string {
	d := time.Duration(a).Truncate(time.Second)
	if d <= 0 {
		return "0s"
	}
	var b strings.Builder
	for _, u := range ageUnits {
		if u.name == "w" && d%u.unit != 0 {
			continue // 8d reads better than 1w1d
		}
		if n := d / u.unit; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, u.name)
			d -= n * u.unit
		}
	}
	return b.String()
}

// MarshalText writes the age into JSON.
func (a Age) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads it from there.
func (a *Age) UnmarshalText(text []byte) error {
	v, err := ParseAge(string(text))
	*a = v
	return err
}
