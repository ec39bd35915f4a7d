package request

import (
	"testing"
	"time"
)

// TestNullIsNotGiven: null in place of a field that is required is the fault that its absence is.
func TestNullIsNotGiven(t *testing.T) {
	if all, faults := DecodeSuppressions([]byte(`{"suppressions":[{"address":null,"reason":null}]}`), time.Now()); len(faults) != 1 || faults[0].Pointer != "/suppressions/0" {
		t.Errorf("%+v, %v", all, faults)
	}
	if all, faults := DecodeAddresses([]byte(`{"addresses":[null]}`)); len(faults) != 1 {
		t.Errorf("%q, %v", all, faults)
	}
	_, faults := Decode([]byte(`{"from":"a@b.example","to":"c@d.example","text":"x","attachments":[{"name":"x","content":null}]}`), time.Now(), Limits{Recipients: 10})
	if len(faults) != 1 || faults[0].Pointer != "/attachments/0" {
		t.Errorf("%v", faults)
	}
}

// TestTimesAfterTheYear9999: JSON has none in UTC, in which lists and databases keep times.
func TestTimesAfterTheYear9999(t *testing.T) {
	for text, want := range map[string]int{"9999-12-31T23:59:59-01:00": 1, "9999-12-31T23:59:59Z": 0} {
		body := `{"suppressions":[{"address":"a@b.example","expires_at":"` + text + `"}]}`
		if all, faults := DecodeSuppressions([]byte(body), time.Now()); len(faults) != want ||
			want == 1 && faults[0].Detail != `"9999-12-31T23:59:59-01:00" is after the year 9999 in UTC` {
			t.Errorf("%s: %+v, %v", text, all, faults)
		}
	}
}
