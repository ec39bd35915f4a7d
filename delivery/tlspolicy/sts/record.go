package sts

import (
	"errors"
	"strings"
)

// What may be wrong with the TXT record of a domain.
var (
	errNoRecord     = errors.New("no MTA-STS record")
	errManyRecords  = errors.New("more than one MTA-STS record")
	errRecordSyntax = errors.New("the MTA-STS record is malformed")
	errNoID         = errors.New("the MTA-STS record has no id")
)

const recordVersion = "v=STSv1"

// ParseRecord finds the id of the current policy in the TXT records of _mta-sts.DOMAIN (RFC 8461, 3.1). The strings of
// a record must be joined. An error means that the domain publishes no usable record.
func ParseRecord(records []string) (id string, err error) {
	record, n := "", 0
	for _, r := range records {
		if strings.HasPrefix(r, recordVersion+";") {
			record, n = r, n+1
		}
	}
	switch n {
	case 0:
		return "", errNoRecord
	case 1:
		return parseFields(strings.TrimPrefix(record, recordVersion))
	}
	return "", errManyRecords
}

// parseFields reads what follows the version: fields, each behind a semicolon, and perhaps a semicolon at the end.
func parseFields(rest string) (id string, err error) {
	fields := strings.Split(rest, ";")[1:] // the first is empty: the prefix had a semicolon
	for i, field := range fields {
		last := i == len(fields)-1
		if last && i > 0 && trim(field) == "" {
			break
		}
		if last && strings.TrimRight(field, " \t") != field {
			return "", errRecordSyntax // white space is allowed around a semicolon only
		}
		name, value, _ := strings.Cut(trim(field), "=")
		if !isFieldName(name) || !isRecordValue(value) {
			return "", errRecordSyntax
		}
		if name == "id" && id == "" { // the first of several counts
			if !isID(value) {
				return "", errRecordSyntax
			}
			id = strings.Clone(value) // it is kept, and the record is not
		}
	}
	if id == "" {
		return "", errNoID
	}
	return id, nil
}

func isID(s string) bool {
	return len(s) >= 1 && len(s) <= 32 && all(s, isAlphanumeric)
}

// isRecordValue checks sts-ext-value: visible ASCII, without "=" and ";".
func isRecordValue(s string) bool {
	return s != "" && all(s, func(c byte) bool { return c > ' ' && c < 0x7f && c != '=' && c != ';' })
}

// isFieldName checks sts-ext-name and sts-policy-ext-name, which are the same.
func isFieldName(s string) bool {
	return len(s) >= 1 && len(s) <= 32 && isAlphanumeric(s[0]) &&
		all(s, func(c byte) bool { return isAlphanumeric(c) || c == '_' || c == '-' || c == '.' })
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

func all(s string, is func(byte) bool) bool {
	for i := range len(s) {
		if !is(s[i]) {
			return false
		}
	}
	return true
}

// trim removes WSP (RFC 5234) at both ends.
func trim(s string) string { return strings.Trim(s, " \t") }
