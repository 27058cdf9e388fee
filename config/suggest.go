package config

import (
	"fmt"
	"strings"
)

// didYouMean suggests the word that was probably meant, in a form to append to a message.
func didYouMean(got string, words []string) string {
	best, distance := "", max(1, len(got)/3)+1
	got = strings.ToLower(strings.ReplaceAll(got, "-", "_"))
	for _, w := range words {
		if d := editDistance(got, strings.ToLower(strings.ReplaceAll(w, "-", "_"))); d < distance {
			best, distance = w, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// editDistance is the number of letters to insert, delete or change (Levenshtein).
func editDistance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
