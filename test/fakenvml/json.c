#include "json.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 16

struct reader {
	const char *p;
	int depth;
};

static struct json *value(struct reader *r);

static void blank(struct reader *r)
{
	while (isspace((unsigned char)*r->p))
		r->p++;
}

static char *string(struct reader *r)
{
	const char *start = ++r->p;
	while (*r->p && *r->p != '"') {
		if (*r->p == '\\') /* no name or path here needs an escape */
			return NULL;
		r->p++;
	}
	if (*r->p != '"')
		return NULL;
	return strndup(start, (size_t)(r->p++ - start));
}

static int members(struct reader *r, struct json *parent, char close)
{
	struct json **tail = &parent->child;
	r->p++;
	blank(r);
	if (*r->p == close) {
		r->p++;
		return 1;
	}
	for (;;) {
		char *key = NULL;
		blank(r);
		if (parent->kind == JSON_OBJECT) {
			if (*r->p != '"' || !(key = string(r)))
				return 0;
			blank(r);
			if (*r->p++ != ':') {
				free(key);
				return 0;
			}
		}
		struct json *v = value(r);
		if (!v) {
			free(key);
			return 0;
		}
		v->key = key;
		*tail = v;
		tail = &v->next;
		blank(r);
		if (*r->p == close) {
			r->p++;
			return 1;
		}
		if (*r->p++ != ',')
			return 0;
	}
}

static int literal(struct reader *r, const char *word)
{
	size_t n = strlen(word);
	if (strncmp(r->p, word, n) != 0)
		return 0;
	r->p += n;
	return 1;
}

static int fill(struct reader *r, struct json *j)
{
	char *end;
	switch (*r->p) {
	case '{':
		j->kind = JSON_OBJECT;
		return members(r, j, '}');
	case '[':
		j->kind = JSON_ARRAY;
		return members(r, j, ']');
	case '"':
		j->kind = JSON_STRING;
		return (j->text = string(r)) != NULL;
	case 't':
		j->kind = JSON_BOOL;
		j->number = 1;
		return literal(r, "true");
	case 'f':
		j->kind = JSON_BOOL;
		return literal(r, "false");
	case 'n':
		return literal(r, "null");
	default:
		j->kind = JSON_NUMBER;
		j->number = strtod(r->p, &end);
		if (end == r->p)
			return 0;
		r->p = end;
		return 1;
	}
}

static struct json *value(struct reader *r)
{
	struct json *j = calloc(1, sizeof *j);
	blank(r);
	if (!j)
		return NULL;
	if (++r->depth > MAX_DEPTH || !fill(r, j)) {
		json_free(j);
		return NULL;
	}
	r->depth--;
	return j;
}

struct json *json_parse(const char *text)
{
	struct reader r = {text, 0};
	struct json *j = value(&r);
	blank(&r);
	if (j && *r.p) {
		json_free(j);
		return NULL;
	}
	return j;
}

void json_free(struct json *j)
{
	while (j) {
		struct json *next = j->next;
		json_free(j->child);
		free(j->key);
		free(j->text);
		free(j);
		j = next;
	}
}

const struct json *json_get(const struct json *object, const char *key)
{
	if (!object || object->kind != JSON_OBJECT)
		return NULL;
	for (const struct json *c = object->child; c; c = c->next)
		if (strcmp(c->key, key) == 0)
			return c;
	return NULL;
}

double json_number(const struct json *object, const char *key, double otherwise)
{
	const struct json *v = json_get(object, key);
	return v && (v->kind == JSON_NUMBER || v->kind == JSON_BOOL) ? v->number : otherwise;
}

const char *json_text(const struct json *object, const char *key, const char *otherwise)
{
	const struct json *v = json_get(object, key);
	return v && v->kind == JSON_STRING ? v->text : otherwise;
}
