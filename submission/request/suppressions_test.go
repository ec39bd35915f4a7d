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
