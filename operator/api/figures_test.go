package api

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"
)

func TestFiguresAreReadAsTheyWereWritten(t *testing.T) {
	want := History{Series: map[string]HistorySeries{"a": {Values: Figures{0, 1.5, -2e9, 1e-7}}, "none": {Values: Figures{}}}}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got History
	if err := json.Unmarshal(text, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%s is read as %+v, %v", text, got, err)
	}
	var some Figures
	if err := json.Unmarshal([]byte(" [ 1 , null,\n2e3]"), &some); err != nil || len(some) != 3 || some[0] != 1 || !math.IsNaN(float64(some[1])) || some[2] != 2000 {
		t.Errorf("%v, %v", some, err)
	}
	for _, text := range []string{`{}`, `[1,"2"]`, `[[1]]`, `true`, `[1,{}]`, `5`} {
		if err := json.Unmarshal([]byte(text), &some); err == nil {
			t.Errorf("%s is read as %v", text, some)
		}
	}
}
