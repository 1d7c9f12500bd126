/* A small JSON reader: enough for a configuration file, nothing more. */
#ifndef FAKENVML_JSON_H
#define FAKENVML_JSON_H

#include <stddef.h>

enum json_kind { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json {
	enum json_kind kind;
	char *key;          /* name within the parent object, or NULL */
	char *text;         /* JSON_STRING */
	double number;      /* JSON_NUMBER, JSON_BOOL */
	struct json *child; /* first member or element */
	struct json *next;
};

/* json_parse returns NULL on any error; the result is freed by json_free. */
struct json *json_parse(const char *text);
void json_free(struct json *j);
const struct json *json_get(const struct json *object, const char *key);
double json_number(const struct json *object, const char *key, double otherwise);
const char *json_text(const struct json *object, const char *key, const char *otherwise);

#endif
