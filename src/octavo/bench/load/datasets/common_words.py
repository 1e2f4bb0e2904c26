"""Frequent English words, short ones mostly."""

_TEXT = """
able about above across after again age air all also always and animal answer any area around ask back ball base
bear beauty bed before began behind best better big bird black blue boat body book both box boy bring brought build
built busy call came can car care carry case cause center certain change check children city class clear close cold
color come common complete contain correct could country course cover cross cry cut dark day deep develop differ
direct dog door down draw drive dry during each early earth ease east eat end enough equate even ever every example
eye face fact fall family far farm fast father feel feet few field figure fill final find fine fire first fish five
fly follow food foot force form found four free friend from front full game gave general get girl give gold good
govern great green ground group grow had half hand happen hard has have head hear heat help here high hold home
horse hot hour house how hundred idea inch interest island just keep kind king know land language large last late
laugh lay lead learn leave left less letter life light like line list listen little live long look lot love low
machine made main make man many map mark may mean measure men mind minute miss money moon more morning most mother
mountain move much multiply music must name near need never new next night north note nothing notice noun now number
numeral object ocean off often old once one only open order other our out over own page paper part pass pattern
people perhaps person picture piece place plain plan plane plant play point port pose possible pound power present
press problem produce product pull put question quick rain ran reach read ready real record red remember rest right
river road rock room round rule run said sail same save saw say school science sea second seem self sentence serve
set several shape she ship short should show side simple since sing sit size sleep slow small snow some song soon
sound south space spell stand star start state stay step still stood stop story street strong study such sun sure
surface table tail take talk teach tell ten test than that the their them then there these they thing think this
those though thought thousand three through time together told too took top toward town travel tree true try turn
two under unit until use usual very voice vowel wait walk want war warm was watch water way week well went were west
what wheel where which while white who whole why wind with wonder wood word work world would write year you young
your
"""
COMMON_WORDS = tuple(_TEXT.split())
