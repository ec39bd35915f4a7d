package dkim

import (
	"errors"
	"fmt"
	"strings"
)

// Result is what the published record of a key is worth.
type Result string

// What Judge can say.
const (
	Fits    Result = "ok"
	Testing Result = "testing" // receivers may treat mail as unsigned
	Missing Result = "missing"
	Wrong   Result = "wrong"
)

// Outcome is a result in words. Why and Remedy are empty when the record fits.
type Outcome struct {
	Result      Result
	Why, Remedy string
}

// Judge holds the texts that are published at the key's name against the key.
func (k *Key) Judge(texts []string) Outcome {
	const publish = "publish the key's record ('mta dkim dns' prints it)"
	var records []string
	for _, t := range texts {
		if strings.Contains(t, "p=") { // others are not for DKIM, as of a wildcard
			records = append(records, t)
		}
	}
	switch len(records) {
	case 0:
		return Outcome{Missing, "there is no record " + k.Name(), publish}
	case 1:
	default:
		return Outcome{Wrong, fmt.Sprintf("there are %d records %s, and receivers take any of them", len(records),
			k.Name()), "leave one: " + publish}
	}
	testing, err := k.Fits(records[0])
	switch {
	case errors.Is(err, ErrOtherKey):
		return Outcome{Wrong, err.Error(), publish + ", or take the private key that belongs to the record"}
	case err != nil:
		return Outcome{Wrong, err.Error(), publish}
	case testing:
		return Outcome{Testing, "t=y in the record lets receivers treat mail as unsigned", "take t=y out of the record"}
	}
	return Outcome{Result: Fits}
}
