"""Bounds: every limit, in one place. Those of `Bounds` an operator may change: config `limits:` names them so."""

from __future__ import annotations

from pegboard.frozen import frozen

KIB = 1024
MIB = 1024 * KIB


@frozen
class Bounds:
    """The limits of one process. Sizes in bytes, times in seconds."""

    # What comes in
    request_body_bytes: int = 4 * MIB
    json_depth: int = 64
    integer_digits: int = 1_000
    object_keys: int = 10_000
    json_keys: int = 50_000
    json_values: int = 150_000
    header_s: float = 10.0
    body_s: float = 30.0
    message_line_bytes: int = 16 * MIB
    upload_bytes: int = 100 * MIB
    invalid_calls_per_minute: int = 300

    # What is declared
    schema_depth: int = 32
    subschemas: int = 2_000
    description_bytes: int = 4 * KIB

    # What a call may use
    calls_in_flight: int = 1_000
    agent_depth: int = 8
    calls_per_request: int = 100
    use_tools_calls: int = 50
    tool_timeout_s: float = 30.0
    agent_timeout_s: float = 120.0
    predicate_s: float = 1.0
    hook_s: float = 1.0
    argument_rewrites: int = 3
    result_bytes: int = 1 * MIB
    ratelimit_keys: int = 100_000

    # What comes back from outside
    upstream_list_bytes: int = 8 * MIB
    upstream_pages: int = 100
    upstream_tools: int = 1_000
    api_description_bytes: int = 32 * MIB
    api_operations: int = 5_000
    http_response_bytes: int = 5 * MIB
    http_redirects: int = 5
    answer_values: int = 300_000
    answer_containers: int = 75_000
    stderr_ring_bytes: int = 64 * KIB
    sql_s: float = 5.0
    sql_rows: int = 1_000
    sql_result_bytes: int = 1 * MIB


def share_of_one(places: int) -> int:
    """Return how many of all places one caller may have: three quarters, so that the others find some."""
    return max(1, places * 3 // 4)


DEFAULT_BOUNDS = Bounds()

# ---- What nobody needs to change: room by room, innermost first. Each comment reads on from its name.

# -- core: what every judge needs
JSON_PIECE_BYTES = 64 * KIB  # of a text whose keys are counted, at once
GLOBS_REMEMBERED = 4_096  # compiled
NAMES_COMPARED = 500  # with one that is not known, for the nearest
NAMES_COMPARED_EACH = 32  # tools of a caller, up to which each is compared; of more those that stand near ...
NAMES_MEANT = 3  # of arguments that are not there, for which it is said what they were probably meant to be ...
PROPERTIES_COUNTED = 200  # ... by their letters with so many that are ...
PROPERTIES_COMPARED = 5  # ... and one by one with these of them
NAMES_BESIDE = 2  # ... so many before and after, by their beginning and by their end
NAME_LISTS = 64  # lists of the names of one snapshot's tools that are kept
NAME_ORDERS = 8  # lists of one snapshot that are kept in the order of their names
SCHEMAS_REMEMBERED = 20_000  # compiled
PATTERN_STEPS = 2_000  # of a regular expression that needs look-around, on one value
PATTERN_ATOMS = 4_000  # of one regular expression with its repetitions written out; there counting stops
JUDGING_NS = 15_000_000  # of the event loop, to judge one value by its schema ...
TELLING_NS = 10_000_000  # ... and to tell what is wrong with it ...
JUDGED_VALUES = 60_000  # of one value, where the schema is not plain
JUDGING_STEPS = 1_000  # ... and steps in counting both beforehand, where it is not plain
LITTLE_BYTES = 64 * KIB  # of one value as JSON, judged by a schema that is not plain without counting what is in it
SCHEMA_PATTERN_BYTES = 4 * MIB  # of one regular expression, compiled
LIGHT_ROOT_NS = 1_000_000  # of one value; schemas that cost no more, ...
LIGHT_PLACE_NS = 160  # ... and no more for each value inside, are not counted at all
SCHEMA_VALUES = 20_000  # names, options and all else that one schema is written of
SCHEMA_COMPILE_NS = 40_000_000  # of the event loop, to compile one schema
SCHEMA_HOPS = 64  # references and alternatives in alternatives that a schema may lead through at one place
LONG_DIGITS = 50_000  # of all numbers beyond 64 bits in one value
SCHEMA_BASES = 16  # URIs that the references of one part of a schema may begin at
ROOT_SCHEMA_DEPTH = 16  # alternatives in alternatives of the root in which an array is looked for
COPIED_VALUES = 10_000  # of one value, into an error of the engine
SHOWN_OPTIONS = 20  # of an enum, in the error of a value that is none of them
SHOWN_MISFITS = 10  # of a result that is given all the same
PROBLEMS = 50  # told of one set of arguments
QUEUED_EVENTS = 1_000  # for one reader; the oldest go
SELECTIONS_REMEMBERED = 256  # with the tools that they leave
VERDICTS_REMEMBERED = 4_096  # of policies on single tools that were called
POLICIES_CHECKED = 256  # that were found to name what there is
SELECTION_CHANGES = 16  # of the catalog, over which what was selected is followed
SELECTIONS_KEPT = 20_000  # with a bit for each tool of the catalog
STEP_GRACE_S = 0.25  # that code may go on after it was told to stop, before it is left alone
OBSERVERS_S = 0.1  # that a call waits for its async observers, until they have been slower once
OBSERVED_EVENTS = 10_000  # that async observers have not heard yet; what comes on top is lost to them
LOOP_BLOCKED_S = 0.1  # of CPU that async code may use at a stretch before the log names it: it stops every other call
CPU_SAMPLE_S = 0.01  # that a reading of the CPU clock is used for; the log may name code so much too late

# -- core: what a person is asked
CONSENT_TEXT_CHARS = 8_000  # of the arguments in one question; a call with more is refused, never shown in part
CONSENT_LINE_CHARS = 160  # of arguments that stand in one line
CONSENT_VALUE_CHARS = 400  # of one key or value that is shown whole ...
CONSENT_ENDS_CHARS = 120  # ... and of the beginning and the end of a longer one
CONSENT_REASON_CHARS = 300  # of why a person is asked

# -- core: the guarded call
STEP_FIRST_RETRY_S = 0.2  # before a step of a call is tried again; doubled each time
STEP_LONGEST_RETRY_S = 10.0  # and the longest
STEP_RESULT_BYTES = 1 * MIB  # of what one step of a task gives, as JSON
TASK_TTL_S = 86_400.0  # that a task is kept, from its beginning, unless the config says otherwise
TASK_LEAST_TTL_S = 1.0  # and the least that a client may ask for
TASK_SWEEP_S = 60.0  # between two looks for tasks whose time is over
TASK_LOOK_S = 1.0  # between two looks at a task that runs elsewhere, for those who wait for it
TASK_POLL_S = 1.0  # that clients are told to wait before they ask again
TASK_BEAT_S = 0.5  # between two signs of life of a worker with tasks in a database ...
TASK_LEASE_S = 3.0  # ... without which others go on with its tasks after this long
TASK_QUEUE_LOOK_S = 0.25  # between two looks of a worker for what others have left behind
TASK_RUNS = 100  # of one task, each in a process that died in it; then it has failed
TASK_REMOTE_LOOK_S = 0.2  # between two looks into a database, for those who wait for a task
TASK_STORE_S = 10.0  # for an answer of the database of tasks
TASK_STORE_BUSY_S = 5.0  # for another process to let go of an SQLite file
TASK_LIST = 1_000  # of one caller, or of all for the operator, in one list
TASKS_IN_MEMORY = 10_000  # kept at once
FLOOD_WINDOW_S = 60.0  # in which a caller's invalid calls are counted
TOOL_THREADS = 64  # of functions that are not async ...
TOOL_THREADS_OF_ONE = 48  # ... and of one caller, so that the others have some
REPEAT_FAILURES = 5  # of one call, in a row and in the same words ...
REPEAT_PAUSE_S = 60.0  # ... and the next is refused for this long
REPEATING_CALLERS = 2_000  # pairs of caller and tool with failures that are counted ...
REPEATED_ARGUMENTS = 100  # ... and of each, different arguments
FLOODING_CALLERS = 10_000  # whose invalid calls are counted
NO_LIMIT_S = 3.0e7  # about a year; stands for no deadline of its own
BUSY_RETRY_S = 1.0  # that a caller who is told `busy` shall wait
REDACTORS_REMEMBERED = 256  # one for each set of secrets
NO_WORD_SECRET_CHARS = 16  # of a secret: a shorter one may be a word, as the names and addresses of a source have them
SHUTDOWN_GRACE_S = 10.0  # for calls that run when the catalog or its server is told to stop

# -- egress: files
PATH_CHARS = 4096  # of a path, as Linux has it
FILE_LOCK_TRIES = 100  # for a file that somebody else has locked ...
FILE_LOCK_PAUSE_S = 0.02  # ... with so long between them
LISTED_FILES = 1_000  # of one folder
READ_TEXT_CHARS = 50_000  # of one file, unless the reader says otherwise

# -- egress: processes
KILL_S = 2.0  # for what was killed to be gone
STOP_GRACE_S = 2.0  # for a program that was asked to end, before it is killed
PIPE_WAITING_BYTES = 1 * MIB  # complete lines that wait for their reader; past this the program has to wait
PIPE_LINE_COST_BYTES = 64  # the memory that each line costs beside its text
PIPE_LINGER_S = 0.25  # for what a program wrote before it died; a descendant that keeps the pipe open gets this long
SANDBOX_MEMORY_BYTES = 256 * MIB  # of a child that runs one function, unless the caller says otherwise ...
SANDBOX_OUTPUT_BYTES = 1 * MIB  # ... and of what it answers
POOL_CHILD_CALLS = 200  # of one child that runs many functions, before it is replaced ...
POOL_CHILD_BYTES = 64 * MIB  # ... or that it was handed

# -- egress: HTTP
GIVEN_AWAY_SECRET_CHARS = 8  # the beginning of a secret that gives it away; foreign text may have been cut in it
ADDRESSES_TRIED = 4  # of one host name
NAME_LOOKUPS = 8  # at once, in threads of their own
CONNECT_S = 10.0  # for one connection
CONNECTIONS = 100  # of one client, at once ...
IDLE_CONNECTIONS = 20  # ... and of them, kept for the next request ...
IDLE_CONNECTION_S = 5.0  # ... for this long
API_CONNECTIONS = 1_000  # to the endpoint of one language model, at once
API_ANSWER_BYTES = 32 * MIB  # of one answer of a language model, whole or streamed ...
API_EVENT_BYTES = 4 * MIB  # ... and of one event of a stream ...
API_EVENT_LINES = 256  # ... which has one line, or two
LONGEST_RETRY_AFTER_S = 999_999.0  # that `Retry-After` is believed

# -- providers: compilation of schemas
PROVIDER_LISTS = 256  # lists of visible tools as bytes, remembered for one snapshot
APPROVALS_REMEMBERED = 256  # of one tool, that a framework of agents asks its person for
GUARD_HOOK_S = 60.0  # until a hook that guards the tools of an SDK has answered, a person included
RULE_CHARS = 200  # of a rule that a target cannot have and a description tells instead
COMPILED_PLACES = 2_000  # of a schema with all references followed
INLINED_BYTES = 256 * KIB  # of definitions written out; one that is referred to often would fill the request
UNROLLED_LEVELS = 2  # of a schema that contains itself

# -- providers: repair of arguments
REPAIRED_BYTES = 64 * KIB  # larger arguments are refused as they are: each guess looks at all of them
REPAIR_TRIES = 200  # of one call ...
REPAIR_LEAST_TRIES = 8  # ... and of one with large arguments
GUESSED_KEYS = 50  # of one object, compared with its properties
REPAIRED_FAULTS = 100  # more are not repaired
REPAIR_LOOKED_AT_BYTES = 256 * KIB  # by all tries together: the larger the arguments, the fewer tries
REPAIR_NS = 40_000_000  # of the event loop, by all tries together
REPAIR_STEPS_IN_A_BRANCH = 8  # of one alternative of a schema
REPAIRED_FENCE_CHARS = 1 << 16  # a longer text is not looked at for a fence around JSON

# -- auth
CLAIM_CHARS = 256  # of what a template makes of claims
JWKS_FRESH_S = 600.0  # that keys are used without asking again; one that was taken back is good for no longer
JWKS_STALE_S = 3_600.0  # that keys are used while the issuer does not answer
JWKS_PAUSE_S = 5.0  # between two fetches: invented key ids must not make us ask again and again
JWKS_FETCH_S = 5.0  # for one fetch
JWKS_BYTES = 256 * KIB  # of one answer
JWKS_KEYS = 100  # of one issuer
KEY_FILE_SETTLED_S = 2.5  # a file written within this time may change again unseen: clocks of file systems are coarse
SECRET_FILE_BYTES = 64 * 1024  # of a file that `${file:…}` names
KEY_FILE_BUSY_MS = 2_000  # that the file of API keys may be locked by somebody else
TOKEN_CHARS = 16 * KIB  # of a JWT
TOKENS_REMEMBERED = 1_000  # that were good, so that they need not be judged again at once
TOKEN_LEEWAY_S = 30  # by which the issuer's clock may differ
TOKEN_KEYS_TRIED = 4  # of one token's key id
TOKEN_KEYS_REMEMBERED = 64  # ready for use

# -- sources: HTTP services (webhook, openapi)
# What the executor waits past a request's own deadline, so that the tool tells what ran out of time.
SERVICE_GRACE_S = 1.0
SERVICE_EXCERPT_CHARS = 500  # of an answer that is an error, shown to the model
SERVICE_EXCERPT_READ_CHARS = 65_536  # of such an answer, searched for secrets
WEBHOOK_RESULT_S = 1.0  # for the expression that picks the result out of an answer
WEBHOOK_INLINE_RESULT_BYTES = 16_384  # a larger answer is picked from in a thread, where it holds up nobody
OPENAPI_FETCH_S = 30.0  # for fetching a description
OPENAPI_SOON_FAILURES = 5  # failed fetches, after which its operations no longer count as soon to come
OPENAPI_RETRY_WAITS_S = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 60.0)  # between failed fetches; the last again and again
OPENAPI_REF_HOPS = 20  # references that lead to references
OPENAPI_NAME_BYTES = 256  # of an operation, before it is made a tool's name
OPENAPI_DOCUMENT_KEYS = 4_000_000  # of a whole description, where `json_keys` is for a message
OPENAPI_DOCUMENT_VALUES = 8_000_000  # of it, where `json_values` is for a message
OPENAPI_DOCUMENT_LEVELS = 200  # of lists and objects in it
OPENAPI_ANSWER_OBJECTS = 400  # of the schema of an answer; what it refers to beyond them is left open
OPENAPI_LESS_ROOM = 8  # times, for what a schema refers to, where all of it is more than can be judged

# -- sources: MCP servers
MCP_FIRST_RETRY_S = 0.2  # the first wait before a lost server is tried again; doubled each time
MCP_LONGEST_RETRY_S = 30.0  # and the longest
MCP_BREAKER_FAILURES = 5  # so many failures ...
MCP_BREAKER_WINDOW_S = 60.0  # ... within this time, and the longest wait comes at once
MCP_STEADY_S = 10.0  # a connection that lived this long ends the series of failures
MCP_NUDGE_S = 1.0  # between two tries that a call asked for
MCP_CONNECT_S = 15.0  # for connecting and the first lists, where a call's time is shorter
MCP_SHORTEST_RELIST_S = 0.05  # between two listings while a server says again and again that its lists changed; doubled
MCP_LONGEST_RELIST_S = 5.0  # and the longest
MCP_CALL_WAITS_S = 0.9  # a call's wait for a connection that is being taken up again
MCP_REFRESH_S = (30.0, 300.0, 3_600.0)  # between two listings of a server that tells of no changes; then longer ones
MCP_INPUT_ROUNDS = 10  # in which one call may ask for input
MCP_MUTE_CALLS = 5  # given up in a row without an answer to anything: the server is out of reach, not busy
MCP_PROGRESS_S = 0.1  # between two steps of progress that are passed on; a person sees ten a second
MCP_LISTEN_AGAIN_S = 5.0  # before a subscription that ended is taken up again
MCP_STREAM_SILENCE_S = 3_600.0  # that a stream may be silent
# Before a stream that broke off is taken up again, however soon the server asks (`retry: 0`).
MCP_RESUME_WAITS_S = (0.5, 1.0, 2.0, 5.0)
MCP_RESUMES = 100  # so often for one answer; the SDK counts those in vain alone, and calls itself for each
MCP_EVENT_BYTES = 1 * MIB  # of one server-sent event; as much as the SDK takes in an SSE session
MCP_MESSAGES_IN_HAND = 16  # read from a program, and not yet taken by the SDK
MCP_LAST_ANSWERS_S = 0.5  # for calls to hear what they met, before the connection that it ends is closed
MCP_REMEMBERED_FAILURES = 1_000  # that wait for the call they belong to
MCP_BAD_LINES = 1_000  # in a row that are no messages, before a program is given up
MCP_PROGRESSING_CALLS = 1_000  # of one program, whose last progress is remembered
MCP_STRETCH_S = 0.01  # that the tools of one list are judged at a stretch, before others get their turn
MCP_SIGN_IN_REQUESTS = 40  # of one sign-in
MCP_COMPLETIONS = 100  # of one answer
MCP_COMPLETION_BYTES = 1_000  # of one completion
MCP_LONG_MESSAGE_BYTES = 64 * KIB  # of one message, up to which its readers read it one after the other at once
MCP_RESULT_BLOCKS = 1_000  # of one result
MCP_MESSAGE_BYTES = 1_000  # of an error or a step of progress, passed on
MCP_LAST_LINES = 10  # of the stderr of a program that failed, as far as those bytes reach
MCP_ANSWER_SHOWN_BYTES = 200  # of a line or answer that is no message
MCP_EXIT_WAIT_S = 1.0  # for a program that has closed its stdout to end, and say with what
MCP_QUESTION_BYTES = 2_000  # of what a server asks a person
MCP_TITLE_BYTES = 256  # of a foreign tool
MCP_META_BYTES = 16 * KIB  # of one `_meta`, or of an icon in the text itself; a larger one is dropped
MCP_META_LEVELS = 16  # of one
HOPS = 4  # servers that a request may have passed on its way here
HOP_ID_CHARS = 64  # of the id of one
MCP_ICONS = 8  # of one tool or resource
MCP_NAME_CHARS = 128  # of a foreign tool, in the server's own words
MCP_NAME_SHOWN_BYTES = 128  # of a foreign tool that is refused
MCP_RESOURCE_ERROR_BYTES = 500  # of an error in place of lists
TEMPLATE_STEPS = 100_000  # characters of a URI times variables of a template; with more it is none of its resources
MCP_URI_CHARS = 2_000  # of a foreign resource
MCP_LINK_MARK_CHARS = 32  # of what shows that a resource was named to its reader: 128 bits
LINK_KEY_BYTES = 32  # of the secret that makes such marks
MCP_PROMPT_ARGUMENTS = 50  # of a foreign prompt
MCP_ARGUMENT_CHARS = 64  # of the name of such an argument
MCP_LOCK_STRICT_BYTES = 4_000_000  # a larger lock, which we wrote ourselves, is read without a message's bounds ...
MCP_LOCK_VALUES = 100_000_000  # ... and with so many values

# -- sources: built-in tools
BUILTIN_GRACE_S = 1.0  # what the executor waits past a tool's own deadline, so that the tool tells what ran out of time
CACHE_ENTRY_BYTES = 1 * KIB  # what a cached value costs beside its key and its text, at most
SEARCH_PAGE_HITS = 100  # read of one answer of a search engine
SEARCH_PAGE_S = 6.0  # for reading a page of hits
SEARCH_TEXT_CHARS = 20_000  # of each text of a hit, before it is made plain
SEARCH_TITLE_CHARS = 500  # of a hit
SEARCH_DATE_CHARS = 100  # of a hit
SEARCH_HIT_CHARS = 4_000  # of each text of a search hit
SEARCH_SNIPPET_BYTES = 4_000  # of a search hit
SEARCH_LINK_FIELDS = 20  # of the query of a search engine's own link
WIKIPEDIA_TITLE_CHARS = 500  # of an article
WIKIPEDIA_EXTRACT_BYTES = 200_000  # of its text
WIKIPEDIA_GUESSES = 5  # where an article is not found
HTTP_RESULT_ROOM_BYTES = 128 * KIB  # of a result, left for what stands beside the body
TRANSFORM_INLINE_S = 0.01  # what takes longer is begun again in a thread, where it holds up nobody
TRANSFORM_THREADS = 4  # ... of as many as there are for that, for all callers
TRANSFORM_START_S = 4.0  # what the child may need to start, on a busy machine
TEMPLATE_S = 1.0  # for an agent's template, once its child has started ...
TEMPLATE_CHARS = 256 * KIB  # ... of what it gives ...
TEMPLATE_CHILDREN = 2  # ... and how many are filled at once
AGENT_NAME_CHARS = 32  # of an agent's name, which others' tools may start with
AGENT_ITERATIONS = 50  # requests of one run to its model, unless the agent says otherwise
AGENT_MODELS_KEPT = 256  # clients of language models that a process keeps
AGENT_STREAM_ITEMS = 1_000  # of one run that wait for their reader: then its text waits, too
AGENT_QUERY_CHARS = 200_000  # of what an agent is asked over HTTP
AGENT_SESSION_CHARS = 200  # of the name of a conversation
AGENT_ENDING_S = 0.2  # for what a stopped run still does, within the grace of the call around it
SESSIONS_REMEMBERED = 1_000  # conversations that a process without a store of them keeps ...
CONVERSATION_BYTES = 4 * MIB  # ... and what one turn may take
CONVERSATION_STORE_BUSY_S = 5.0  # how long another process may hold the store
TEMPLATE_EXPONENT = 100  # of a power in a template ...
TEMPLATE_POWER_BASE = 10**12  # ... and its base
SCRAPE_EXTRACT_S = 15.0  # for the reading of a page, past the fetching; importing the reader is most of it
SCRAPE_CHARS = 400_000  # of a page's text ...
SCRAPE_OUTPUT_BYTES = 4 * MIB  # ... and what the reader writes of it
EMAIL_RECIPIENTS = 50  # of one mail
SMTP_GOODBYE_S = 2.0  # for the end of a session whose mail is sent
SLACK_PLAIN_WORD_CHARS = 8  # a longer part of a webhook's URL is taken for a key, and kept out of results
WEBHOOK_RESPONSE_BYTES = 64 * KIB  # of the answer to a sent webhook, unless its config says otherwise
POSTGRES_MESSAGE_BYTES = 16 * MIB  # of one row or message
POSTGRES_GRACE_S = 0.5  # the server stops a query at its deadline; one that hangs is left alone this much later
POSTGRES_CONNECT_S = 5  # for connecting; whole seconds, as libpq has it
SQL_ROWS_AHEAD = 10  # of one statement, held beside those of the answer
SQLITE_MEMORY_BYTES = 256 * MIB  # of all statements of the process together: SQLite does not count them apart
SQLITE_VALUE_BYTES = 4 * MIB  # that one function may make
SQLITE_TRIM_CHARS = 1_000  # different ones to trim
SQLITE_MATCH_CHARS = 10_000  # of one text that FTS5 searches for: its time grows with their square

# -- limits: the shared store
LIMIT_STORE_SILENCE_S = 0.03  # of the store; with what else a decision takes, that stays below 50 ms

# -- skills
MCP_PAGE_SKILLS = 20  # in one page: each lists its files
SKILL_FILES = 512  # of one skill
SKILL_BYTES = 16 * MIB  # of all its files
SKILL_FRONT_MATTER_CHARS = 65_536  # of the front matter of a SKILL.md ...
SKILL_FRONT_MATTER_VALUES = 10_000  # ... and its values

# -- consent: the shared store
CONSENT_STORE_BUSY_S = 2.0  # that an answer waits for the store, before it is not taken
CONSENT_QUESTION_S = 86_400.0  # that a filed question waits for a person
CONSENT_GOOD_S = 3_600.0  # that a yes to one call is good
CONSENT_DECLINED_S = 86_400.0  # that a no is remembered in its session
CONSENT_GRANT_S = 31 * 86_400.0  # that a grant lasts at most ...
CONSENT_GRANT_CALLS = 10_000  # ... and the calls that it allows at most
CONSENT_OPEN_QUESTIONS = 100  # of one principal ...
CONSENT_ALL_QUESTIONS = 10_000  # ... and of all
CONSENT_ARGUMENTS_BYTES = 65_536  # of one question's arguments that are kept beside its text
CONSENT_KEPT_S = 31 * 86_400.0  # that a record is kept after its end
CONSENT_LISTED = 500  # records in one list
CONSENT_REMEMBERED = 10_000  # answers kept in memory, where there is no store

# -- telemetry
COUNTED_TOOLS = 5_000  # each with metrics of its own

# -- discovery
BATCH_ROOM_BYTES = 4_096  # of an answer to useTools, left for what stands around the results
LISTED_LINE_CHARS = 200  # of one tool in a listing
EXPOSED_LISTS = 256  # lists with meta tools, remembered for one snapshot
TWO_TOOL_DIGEST_TOKENS = 2_000  # of the digest of what is there, in exposure `two_tool` ...
SEARCH_DIGEST_TOKENS = 400  # ... and in exposure `search`
DIGEST_NAMES_TOKENS = 1_500  # of a digest that names every namespace and no tool
SEARCH_ANSWER_TOKENS = 1_500  # up to which an answer to searchTools carries schemas ...
SEARCH_SCHEMAS = 3  # ... of so many first hits of each query
INTENT_CHARS = 4_000  # of each text of an intent
LINT_QUERY_CHARS = 300  # of a description, asked as a query
LOOP_NUDGE_CALLS = 3  # equal questions of one session, and the answer nudges
LOOP_SESSIONS = 2_000  # whose questions are remembered
LOOP_QUESTIONS = 50  # of one session that are remembered
SEARCH_QUERIES = 5  # of one searchTools
SEARCH_HITS = 50  # of one query, at most
SEARCH_USUAL_HITS = 8  # of one query, unless it says otherwise
SEARCH_ECHO_CHARS = 4_000  # of a query that its answer repeats; as many as the index reads
BATCH_CALLS_AT_ONCE = 8  # of one useTools
USE_WITHIN_S = 600.0  # after a search, in which a call tells what it was for ...
USE_CALLS = 5  # ... and the calls that do
USE_SEARCHES = 10_000  # of callers, remembered until their calls come
USE_UNWRITTEN = 1_000  # uses that wait for the file; more are dropped
USE_BUSY_S = 1.0  # that the file is waited for, on its own thread, and that a question to it may last ...
USE_STEPS = 10_000  # ... of SQLite's machine, after which the time is looked at
USE_WAIT_S = 0.25  # that a search waits for what was used, before it does without
USE_FRESH_S = 5.0  # that what was read of a space is taken as it is
USE_SPACES_AT_HAND = 64  # whose use is remembered
USE_SPACE_ROWS = 5_000  # of one space in the file ...
USE_CALLER_ROWS = 200  # ... and of one caller in it
USE_SPACES = 1_000  # in the file
USE_KEPT_S = 90 * 86_400.0  # that a use counts after its last time
EXAMPLE_REQUESTS = 16  # of one tool, in the file of example requests ...
EXAMPLE_REQUEST_CHARS = 200  # ... and of each
EXAMPLE_PROMPT_CHARS = 6_000  # of a tool's texts that a model writes requests from
EXAMPLE_TOOLS_A_RUN = 1_000  # that one run asks a model about; the next goes on
EXAMPLE_FILE_BYTES = 16 * MIB  # of the file
EXAMPLE_FILE_VALUES = 500_000  # in it

# -- embedders
EMBED_BATCH = 64  # texts of one request to a model
EMBED_TEXT_CHARS = 8_000  # of one text that a model reads
EMBED_DIMENSIONS = 8_192  # of one vector, at most
EMBED_CACHE_ROWS = 200_000  # vectors that one file keeps
EMBED_ENDS_S = 1.0  # that what an embedder still does may take to end, when nobody needs it any more
EMBED_READ_S = 60.0  # of one batch of tools that a model reads in the background
EMBED_REST_S = 30.0  # after a failure, in which searches go by words alone
EMBED_WAIT_S = 1.5  # that a search waits for an embedder, before it goes by words alone
EMBED_QUERIES = 1_000  # requests whose vectors are remembered
EMBED_MATRICES = 4  # of whole catalogs, at hand
EMBED_CACHE_BUSY_S = 1.0  # that a search waits for the file, before it does without
EMBED_LOAD_S = 30.0  # that a search waits once for a model on this machine, before it goes by words alone
EMBED_TURN_TEXTS = 8  # that a model on this machine reads before it is another caller's turn
EMBED_FILE_SAMPLES = 32  # of each file of a model, by which it is told from another ...
EMBED_FILE_SAMPLE_BYTES = 64 * KIB  # ... and of each of them
EMBED_MODEL_FILES = 1_000  # that are looked at for it

# -- discovery: the search engine
SEARCH_VISIBLE_SETS = 256  # of callers, remembered for one snapshot
SEARCH_NEAR_NAMESPACES = 3  # told when no word was found
SEARCH_QUERY_CHARS = 4_000  # that the index reads
SEARCH_COMPOUND_CHARS = 64  # of a word that is looked at as two that are written together
SEARCH_QUERY_WORDS = 64  # different ones of one query
SEARCH_COMPARED_WORDS = 16  # of one query that no tool has, looked at for their halves and for spellings near them
SEARCH_SPELLINGS = 3  # near one unknown word
SEARCH_RESEMBLED_WORDS = 16  # of a request that nothing matches, compared by their runs of letters ...
SEARCH_RESEMBLING_TERMS = 8  # ... and words of tools that each resembles
SEARCH_GUESSED_CHARS = 16  # of a word that is looked for with one letter changed
SEARCH_WORDS_REMEMBERED = 1 << 16  # cut and stemmed
SEARCH_LANGUAGES_REMEMBERED = 1 << 8  # sets of them, with their stop words

# -- workspace: what is taken in
PARSERS = 4  # children that read files at once; no more than there are processors
PARSE_S = 30.0  # for reading one file
PARSE_MEMORY_BYTES = 512 * MIB  # of a child that reads files
PARSE_OUTPUT_BYTES = 64 * MIB  # of what one file says, as JSON
DOCUMENT_CHARS = 20_000_000  # of the text of one document
DOCUMENT_TITLE_CHARS = 200  # of a title, an author or the name of a column
DOCUMENT_HEADINGS = 100  # of one document, that are told of it
DOCUMENT_METADATA_BYTES = 16 * KIB  # that one may be given
DOCUMENT_TERM_CHARS = 64  # of one word, by which it is found
DOCUMENT_WORDS_REMEMBERED = 1 << 17  # cut and stemmed
CHUNK_CHARS = 1_200  # of one passage, at most ...
CHUNK_LEAST_CHARS = 300  # ... and at least, where the text goes on
ARCHIVE_BYTES = 256 * MIB  # of what is packed in one Office file ...
ARCHIVE_RATIO = 100  # ... by so much more than the file itself at most ...
ARCHIVE_RATIO_BYTES = 8 * MIB  # ... where it is more than this ...
ARCHIVE_ENTRIES = 10_000  # ... and the parts that it may have
PDF_PAGES = 10_000  # of one PDF
TABLE_CELL_CHARS = 1_000_000  # of one cell
TABLE_COLUMNS = 1_000  # of one table ...
TABLE_ROWS = 1_000_000  # ... and its rows
UPLOADS_AT_ONCE = 4  # of one server, three of them for one caller; others wait ...
UPLOAD_WAIT_S = 60.0  # ... at most so long
UPLOAD_S = 300.0  # until the file of an upload is there
UPLOAD_PATIENCE_S = 1.0  # that a caller without a place waits, before the slowest of the one with most gives his up ...
UPLOAD_LEAST_BYTES_S = 16 * KIB  # ... or, where each has one, one whose file comes more slowly than this
VECTOR_SCAN_PASSAGES = 20_000  # of 384 dimensions that SQLite reads in 100 ms: bench/document_scale.py
INGEST_URL_S = 120.0  # for fetching one address, redirects too
FEED_ENTRIES = 2_000  # of one feed
FEED_LEVELS = 100  # of its elements
INGEST_FOLDER_FILES = 1_000_000  # of one folder
INGEST_LEVELS = 64  # of folders in folders
INGEST_AT_ONCE_BYTES = 32 * MIB  # of files, read and not yet stored
INGEST_BATCH_DOCUMENTS = 100  # stored in one transaction ...
INGEST_BATCH_CHARS = 4_000_000  # ... or of text

# -- workspace: the store
VECTOR_EXACT_PASSAGES = 20_000  # of one space that are all compared on PostgreSQL; above it an index may find them
NEAR_INDEX_CANDIDATES = 400  # that such an index looks at
NEAR_INDEX_RECALL = 0.95  # of the ten nearest that it has to find to be used ...
NEAR_INDEX_PROBES = 20  # ... measured by so many questions
NEAR_INDEX_GROWTH = 2  # times the passages, until one that found too few is tried again
NEAR_INDEX_DIMENSIONS = 2_000  # that it takes: pgvector's own limit
NEAR_INDEX_MEMORY_MIB = 256  # of the server, while one is made
DOCUMENT_STORE_BUSY_S = 30.0  # that a writer waits for another ...
DOCUMENT_STORE_READ_BUSY_S = 2.0  # ... and a reader
DOCUMENT_STORE_CONNECTIONS = 8  # kept open for readers
SPACE_CHARS = 128  # of the name of a space
SOURCE_NAME_CHARS = 128  # of the name of a source
PRINCIPAL_CHARS = 300  # of `user:…` or `role:…`

# -- workspace: its tools
DOCUMENT_RESULT_BYTES = 64 * KIB  # of one answer
DOCUMENT_READ_CHARS = 50_000  # of one document, read at once
DOCUMENT_ID_CHARS = 100
DOCUMENT_URL_CHARS = 8_192  # of the URL of a page
WEB_PAGE_CHARS = 20_000  # of a page, unless it says otherwise
DOCUMENT_RESOURCES = 1_000  # that are listed as resources of MCP; more are read by their URIs all the same
DIGEST_FOLDERS = 5  # told of beside the tools
DOCUMENT_QUERY_ROWS = 1_000  # of one query over tables, at most ...
DOCUMENT_QUERY_USUAL_ROWS = 100  # ... and unless it says otherwise
DOCUMENT_QUERY_CHARS = 20_000  # of its text
DOCUMENT_QUESTION_CHARS = 10_000  # of a question in words
DOCUMENT_QUESTION_S = 120.0  # for a model to write SQL that answers it, and to mend it ...
DOCUMENT_QUESTION_REPAIRS = 2  # ... so often at most
DOCUMENT_QUESTION_ROWS = 3  # of each table that the model is shown ...
DOCUMENT_QUESTION_SHOWN_CHARS = 30_000  # ... and of all that it is told of tables
ANALYSIS_QUESTION_CHARS = 10_000  # of a question about one document
ANALYSIS_STEPS = 50  # requests of the agent that answers it, at most ...
ANALYSIS_USUAL_STEPS = 12  # ... and unless the question says otherwise
ANALYSIS_PASSAGES = 6  # that it begins with
ANALYSIS_HEADINGS = 50  # of the document, that it is told
ANALYSIS_CITATIONS = 50  # in one answer
ANALYSIS_QUOTE_CHARS = 1_000  # of one citation
DOCUMENT_TABLES = 500  # that one query may be about
SEARCH_PASSAGES = 50  # of one search
SEARCH_FUSED_PASSAGES = 200  # ranked by words, and by vectors, before the two are one
SEARCH_DOCUMENT_TERMS = 64  # different ones of one question
GREP_LINE_CHARS = 1_000  # of one line that is shown
GREP_MEMORY_BYTES = 8 * MIB  # of one compiled pattern
GREP_PATTERN_CHARS = 1_000
GLOB_CHARS = 500  # of a pattern over names
DOCUMENT_FILTER_IDS = 100  # in one filter
DOCUMENT_CURSOR_CHARS = 2_000

# -- server: what is common to its doors
AFTER_GRACE_S = 2.0  # what stopped calls get to write their last answer
EXIT_THREAD_S = 0.5  # for a thread that still runs when the process ends
CREDENTIAL_CHARS = 16 * KIB  # of a bearer credential
IDENTIFY_S = 10.0  # what a host may take to say who sends a request
ANSWERED_STREAM_S = 1.0  # for a stream to end after its answer, before its id counts as still open
ENVELOPE_LEVELS = 4  # of JSON that the protocol itself puts around arguments
GRANTS_REMEMBERED = 1_024  # of credentials, with who was let in by them
CALLERS_REMEMBERED = 1_024  # principals whose `Caller` is at hand
HOSTS_REMEMBERED = 256  # pairs of Host and Origin that were let in
LOGGED_PATH_CHARS = 200  # of a request, in the access log
REFUSAL_TOLD_S = 1.0  # between two lines on requests whose headers are refused
LOGGED_NAME_CHARS = 128  # of what a call asked for, in the call log
HOST_NAME_CHARS = 253  # of a host name that a refusal repeats; DNS has no longer ones
# A connection without a request is kept longer than any usual client or proxy keeps it (httpx 5 s, nginx and the load
# balancers 60 s): whoever closes first must be the one that sends, or a request meets a closed connection.
KEEP_ALIVE_S = 75
# A worker that ends takes no more connections, and what is on its way to it on those that it has arrives meanwhile.
LAST_REQUESTS_S = 0.5
BUS_ANSWER_S = 1.0  # for another worker to answer on the bus
BUS_WAITING = 10_000  # messages that are to go out on it
BUS_SOCKET_S = 2.0  # for its store to take one
BUS_PING_S = 15.0  # of silence, after which it is looked whether the store is there
BUS_PART_CHARS = 7_800  # of a message on PostgreSQL, which takes less than 8,000 bytes at once
BUS_AGAIN_S = 0.5  # before it is connected again
ACCEPT_AGAIN_S = 0.5  # after a connection could not be taken, for want of files for example
ACCEPT_LATER_S = 0.001  # that a worker with more connections than another leaves the next to that ...
ACCEPT_LATER_TIMES = 10  # ... before it takes it nevertheless
CONNECTIONS_AHEAD = 2  # more than another has, up to which a worker takes the next at once
WORKERS = 64  # of one parent, at most
WORKER_RESTART_S = 0.5  # before one that fails again and again is started once more; doubled each time ...
WORKER_RESTART_MOST_S = 30.0  # ... up to this
WORKER_SETTLED_S = 10.0  # one that lived for this long did not fail again
ENDED_WORKERS = 16  # whose counts each of the others still knows one by one; those of older ones are added up
WORKER_END_S = 20.0  # for a worker to end, before it is killed
HEADER_BYTES = 128 * KIB  # of one request's headers
HEADERS = 256  # of one request: each costs more than its bytes
PIPELINED_REQUESTS = 32  # that one connection sends before the first of them is answered; it ends with the last
LINGER_S = 2.0  # for a client that still sends the body of a refused request to read the answer
STREAM_EVENTS = 1_000  # that wait for one listener; the oldest go
STREAM_BYTES = 4 * MIB  # of them
CONNECTIONS_ENDED = 100  # and as many as are left, before what they took is given back to the system ...
GIVING_BACK_S = 5.0  # ... after this, in which their calls and streams have ended, too
COLLECTOR_PAUSE_S = 0.025  # a full collection that held the loop for longer sets aside what it found alive ...
COLLECTOR_ASIDE_S = 60.0  # ... and after this, another one looks at all of it

# -- server: the HTTP API
QUERY_FIELDS = 20  # of one URL
# A call refused within this time, before its first progress, is answered with its own HTTP status.
API_OPEN_STREAM_S = 0.05
CURSOR_CHARS = 200  # of a cursor that is looked at
SEALING_KEY_BYTES = 32  # of a key that seals, at least
CHANGES_SETTLE_S = 0.02  # changes within this time are told as one: a module declares its tools one by one
IPV6_NETWORK_BITS = 64  # of an address: who has one has all of its network, and is one caller
API_STREAMS = 1_000  # open at once, of everybody ...
API_STREAMS_OF_ONE = 20  # ... and of one caller
API_TYPED_TOOLS = 500  # with more, the document has one path for all of them
STREAM_PING_S = 15.0  # a stream silent for this long sends a comment, so that nothing on the way closes it
API_PAGE_TOOLS = 100  # of one page, unless the request says otherwise ...
API_MOST_PAGE_TOOLS = 1_000  # ... and at most
API_FOUND_TOOLS = 50  # of one search, at most
API_QUERY_CHARS = 1_000  # of one search

# -- server: MCP
WATCHED_AFTER_S = 0.02  # a call that still runs after this long gets a watcher; most are done by then
PROGRESS_MESSAGE_CHARS = 2_000  # of one step of progress that a client is told
RECONNECT_MS = 500  # that a client shall wait before it takes up a stream again
TARGETS_REMEMBERED = 256  # addresses that were asked for ...
TARGET_BYTES = 256  # ... and are no longer than this
HEADER_SETS_REMEMBERED = 2_048  # that were let in ...
HEADERS_REMEMBERED = 24  # ... of no more headers than this
MCP_LISTENING_STREAMS_OF_ONE = 100  # caller
MCP_LISTENING_TASKS = 100  # that one such stream tells of
META_REMEMBERED = KIB  # forms of `_meta` that were accepted
META_REMEMBERED_BYTES = 4_096  # of such a form
MCP_PAGE_RESOURCES = 1_000  # of one page
MCP_SUGGESTIONS = 100  # of one completion; the protocol's own limit
MCP_PAGE_TASKS = 200  # of one page
MCP_PAGE_TOOLS = 2_000  # of one page
SDK_MESSAGES_IN_HAND = 16  # between a transport of ours and the SDK
SAMPLED_TOKENS = 1_000  # that a client's model is asked for, unless the tool says otherwise
REQUEST_STATE_S = 600.0  # that an answer to a question may take
USED_STATES = 100_000  # remembered, so that none is used twice
SESSION_TELL_S = 1.0  # for telling one session of a change
INITIALIZE_BYTES = 32_768  # of the first message of a session
SESSION_ID_CHARS = 2_000  # of the id of a session; clients and proxies take more
SESSION_S = 7 * 86_400.0  # that such an id is good; then its client begins anew
SESSIONS_ENDED = 100_000  # ids that were ended before that, remembered so that none is opened again
SESSION_MESSAGES = 256  # of one session, to be sent again to a client that lost them ...
SESSION_BYTES = 2 * MIB  # ... and their size
SESSION_SUBSCRIPTIONS = 1_000  # to resources
SESSIONS = 10_000  # of earlier revisions, open at once
SESSIONS_OF_ONE = 1_000  # a tenth of them: one credential must leave room for the others
SESSION_IDLE_S = 1_800.0  # without a request or an open stream, before what is known of a session is forgotten ...
SESSION_SWEEP_S = 60.0  # ... and between two looks for such sessions
LIST_TTL_MS = 60_000  # that a client may go on using a list
STARTING_TTL_MS = 1_000  # while a source has yet to give its first lists
STDIO_END_GRACE_S = 0.5  # for answers after the end of input (`printf … | pegboard serve --stdio`)

# -- config
LEFT_OUT_SHOWN = 20  # operations of one API, each as a problem of its own
CONFIG_FILE_BYTES = 1 * MIB  # of one file
CONFIG_KEYS_LOOKED_AT = 200  # to tell whether a file is a config at all
PYTHON_FILES = 2_000  # of one package beside a config, whose rights are looked at
CONFIG_FILES = 1_000  # that one config leads to
PROBLEM_LINES = 100  # of a config, shown with the problems in them; the problems after those come without
PROBLEM_LINE_CHARS = 1_000  # of one such line: to look for secrets in a longer one takes too long, so it is not shown
YAML_NODES = 100_000  # as if every alias were written out: a few aliases of aliases can mean billions
OPENAPI_CAREFUL_YAML_CHARS = 256 * KIB  # of YAML with a fault, read again by the slow reader that can explain it
RELOAD_INTERVAL_S = 0.25  # between two looks at the files
RELOAD_RETIRE_S = 60.0  # for calls of a source that a reload took away

# -- cli
FOREIGN_FILE_BYTES = 32 * MIB  # of a configuration of another program, or a catalog of servers
FOREIGN_ENTRIES = 500  # that one import takes
OPERATOR_FILE_WAIT_S = 5.0  # for another Pegboard that writes the same file; nobody writes for longer
COMPLETION_FILE_BYTES = 256 * KIB  # of a config or lock whose names a shell completes
ADD_CONNECT_S = 180.0  # for a server that is added: its package may have to be fetched first
ADD_SHOWN_TOOLS = 60  # of a server that is added, in words; `--json` has all
CLI_REF_STEPS = 32  # references that lead to references, in a schema that options are made of
REFS_FILE_BYTES = 2 * MIB  # of a file that is searched for names of tools
CLI_SHOWN_CHARS = 160  # of the arguments or the result of a call that an agent makes, in its line
CLI_STOP_GRACE_S = 1.0  # for calls that run when a command ends
CLI_SOURCE_WAIT_S = 15.0  # for a source that does not say how long it may take; then the command goes on without it
CLI_SOURCE_MARGIN_S = 5.0  # past the time that a source gives itself, after which it says what was wrong
CLI_SILENT_WAIT_S = 5.0  # for sources, before a command says what it waits for
